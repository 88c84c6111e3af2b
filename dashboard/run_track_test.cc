// SPDX-License-Identifier: Apache-2.0
#include "dashboard/run_track.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace skerry::dashboard {
namespace {

pb::HistoryPoint commit(std::uint64_t number, const std::string& node, std::uint64_t epoch) {
  pb::HistoryPoint point;
  point.set_number(number);
  point.set_step(10 * number);
  point.set_unix_ms(static_cast<std::int64_t>(60'000 * number));
  point.set_loss(1.0 / static_cast<double>(number));
  point.set_train_seconds(50);
  point.set_node(node);
  point.set_epoch(epoch);
  return point;
}

nlohmann::json expert(const RunTrack& track, std::size_t index) {
  return nlohmann::json::parse(track.json())["experts"][index];
}

TEST(RunTrack, AStretchIsOneNodeUnderOneEpoch) {
  RunTrack track;
  track.add(1, commit(1, "a", 1));
  track.add(1, commit(2, "a", 1));
  track.add(1, commit(3, "b", 2));
  track.add(1, commit(4, "b", 3));
  EXPECT_EQ(track.last(0), 0U);
  EXPECT_EQ(track.last(1), 4U);
  const nlohmann::json leases = expert(track, 1)["leases"];
  ASSERT_EQ(leases.size(), 3U);
  EXPECT_EQ(leases[0],
            nlohmann::json::parse(
                R"({"node":0,"epoch":1,"from":10000,"to":120000,"step":20,"commits":2})"));
  EXPECT_EQ(leases[1]["node"], 1);
  EXPECT_EQ(leases[1]["from"], 130000);
  EXPECT_EQ(leases[2]["node"], 1);
  EXPECT_EQ(nlohmann::json::parse(track.json())["nodes"], (nlohmann::json{"a", "b"}));
}

TEST(RunTrack, AStretchBeginsNoEarlierThanTheOneBeforeEnds) {
  RunTrack track;
  track.add(0, commit(1, "a", 1));
  pb::HistoryPoint slow = commit(2, "b", 2);
  slow.set_train_seconds(500);
  track.add(0, slow);
  EXPECT_EQ(expert(track, 0)["leases"][1]["from"], 60000);
}

TEST(RunTrack, ThinsTheOlderHalfAndKeepsLeasesExact) {
  RunTrack track;
  for (std::uint64_t i = 1; i <= 10'000; ++i) track.add(0, commit(i, "a", 1 + i / 5'000));
  EXPECT_LE(track.points(0), RunTrack::kPoints);
  const nlohmann::json drawn = expert(track, 0);
  EXPECT_EQ(drawn["step"].back(), 100'000);
  EXPECT_EQ(drawn["step"].front(), 10);
  for (std::size_t i = 1; i < drawn["step"].size(); ++i)
    EXPECT_LT(drawn["step"][i - 1], drawn["step"][i]);
  EXPECT_EQ(drawn["leases"].size(), 3U);
  EXPECT_EQ(drawn["leases"][1]["commits"], 5'000);
}

TEST(RunTrack, KeepsTheNewestLeases) {
  RunTrack track;
  for (std::uint64_t i = 1; i <= 1'000; ++i) track.add(0, commit(i, i % 2 ? "a" : "b", i));
  const nlohmann::json leases = expert(track, 0)["leases"];
  EXPECT_EQ(leases.size(), RunTrack::kLeases);
  EXPECT_EQ(leases.back()["epoch"], 1'000);
}

TEST(RunTrack, SixtyFourExpertsFitAPhone) {
  RunTrack track;
  for (std::uint32_t index = 0; index < 64; ++index) {
    for (std::uint64_t i = 1; i <= 3'000; ++i) track.add(index, commit(i, "node", 1 + i / 50));
  }
  EXPECT_LT(track.json().size(), 1'500'000U);
}

}  // namespace
}  // namespace skerry::dashboard
