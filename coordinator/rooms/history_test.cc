// SPDX-License-Identifier: Apache-2.0
#include "coordinator/rooms/history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "coordinator/testing/testing.h"

namespace skerry::coordinator {
namespace {

using testing::Harness;
using ::testing::HasSubstr;
using testing::Who;

constexpr std::uint64_t kMost = History::kParts * History::kPartPoints;

class RunHistory : public ::testing::Test {
 protected:
  RunHistory() : node(harness.join("n1")) { run = harness.create_run("fashion", 1, kSteps); }

  pb::HistoryReply page(std::uint64_t after = 0, std::uint32_t limit = 0,
                        std::uint32_t expert = 0) {
    return harness
        .admin_ask([&](pb::AdminRequest& request) {
          request.mutable_run_history()->set_name("fashion");
          request.mutable_run_history()->set_expert(expert);
          request.mutable_run_history()->set_after(after);
          request.mutable_run_history()->set_limit(limit);
        })
        .history();
  }
  // As a viewer reads it.
  std::vector<pb::HistoryPoint> all() {
    std::vector<pb::HistoryPoint> points;
    while (true) {
      const pb::HistoryReply next = page(points.empty() ? 0 : points.back().number());
      if (next.points().empty()) return points;
      points.insert(points.end(), next.points().begin(), next.points().end());
    }
  }
  void train(std::uint64_t rounds) {
    for (std::uint64_t i = 0; i < rounds; ++i)
      ASSERT_EQ(harness.commit_round(node).status(), pb::COMMIT_ACCEPTED);
  }

  static constexpr std::uint64_t kSteps = 1'000'000;
  Harness harness;
  Who node;
  std::string run;
};

TEST_F(RunHistory, SaysWhatEachCommitSaid) {
  pb::Commit commit = testing::next_commit(harness.assignment(node).slots(0));
  commit.mutable_metrics()->set_loss(.25);
  commit.mutable_metrics()->set_gradient_norm(2);
  commit.mutable_metrics()->set_samples(640);
  commit.mutable_metrics()->set_train_seconds(1.5);
  ASSERT_EQ(harness.commit(node, commit).status(), pb::COMMIT_ACCEPTED);
  ASSERT_EQ(all().size(), 1U);
  const pb::HistoryPoint point = all()[0];
  EXPECT_EQ(point.number(), 1U);
  EXPECT_EQ(point.step(), 10U);
  EXPECT_GT(point.unix_ms(), 0);
  EXPECT_EQ(point.loss(), .25);
  EXPECT_EQ(point.gradient_norm(), 2);
  EXPECT_EQ(point.samples(), 640U);
  EXPECT_EQ(point.train_seconds(), 1.5);
  EXPECT_EQ(point.node(), "n1");
  EXPECT_EQ(point.epoch(), commit.epoch());
  page(0, 0, 1);
  EXPECT_THAT(harness.last_error.message(), HasSubstr("counted from 0, and no 1"));
}

TEST_F(RunHistory, IsOfTheBatchOfTheCommit) {
  train(3);
  harness.disk_stalls = true;
  const pb::Commit lost = testing::next_commit(harness.assignment(node).slots(0));
  harness.send_commit(node, lost);
  harness.store(testing::object_of(lost));
  harness.restart();
  harness.disk_stalls = false;
  EXPECT_EQ(all().size(), 3U);
  EXPECT_EQ(harness.core().experts().at(0).head_step, 30U);
  harness.reconnect(node);
  ASSERT_EQ(harness.send_commit(node, lost).status(), pb::COMMIT_ACCEPTED);
  EXPECT_EQ(all().size(), 4U);
  EXPECT_EQ(all().back().number(), 4U);
}

TEST_F(RunHistory, KeepsTheRecentHalfAndThinsTheOlder) {
  train(kMost);
  EXPECT_EQ(all().size(), kMost);
  train(1);
  const std::vector<pb::HistoryPoint> thinned = all();
  EXPECT_EQ(thinned.size(), kMost * 3 / 4 + 1);
  EXPECT_EQ(thinned.front().number(), 2U);
  EXPECT_EQ(thinned[kMost / 4 - 1].number(), kMost / 2) << "the newest of the older half";
  EXPECT_EQ(thinned[kMost / 4].number(), kMost / 2 + 1);
  EXPECT_EQ(thinned.back().step(), 10 * (kMost + 1));
  harness.restart();
  EXPECT_EQ(all().size(), thinned.size()) << "on the disk too";
  harness.reconnect(node);
  train(kMost);
  EXPECT_LE(all().size(), kMost);
  EXPECT_EQ(all().back().number(), 2 * kMost + 1);
}

TEST_F(RunHistory, ComesInPages) {
  train(70);
  EXPECT_EQ(page(0, 66).points_size(), 66);
  EXPECT_EQ(page(66, 66).points_size(), 4);
  EXPECT_EQ(page(70).points_size(), 0);
}

TEST_F(RunHistory, GoesWithItsRun) {
  train(1);
  ASSERT_TRUE(harness.disk.contains("history/" + run + "/0000000000000000/0000000000000001"));
  for (const auto set :
       {&pb::AdminRequest::mutable_run_stop, &pb::AdminRequest::mutable_run_delete})
    harness.admin_ask([&](pb::AdminRequest& request) { (request.*set)()->set_name("fashion"); });
  for (const auto& [key, value] : harness.disk) EXPECT_FALSE(key.starts_with("history/")) << key;
}

// S16: what does not fit refuses the start, by its key.
TEST_F(RunHistory, ThatIsDamagedRefusesTheStart) {
  train(1);
  const std::string key = "history/" + run + "/0000000000000000/0000000000000001";
  const auto refusal_of = [&](const std::function<void(stored::HistoryPart&)>& damage) {
    stored::HistoryPart part;
    EXPECT_TRUE(part.ParseFromString(harness.disk.at(key)));
    damage(part);
    std::vector<KeyValue> state;
    for (const auto& [each, value] : harness.disk)
      state.push_back({each, each == key ? part.SerializeAsString() : value});
    testing::CountingRng rng(1);
    testing::TextAuthority authority;
    const auto loaded = Core::load(harness.config, rng, authority, state, harness.now);
    return loaded ? "" : loaded.error().message;
  };
  EXPECT_EQ(refusal_of([](auto&) {}), "");
  EXPECT_THAT(refusal_of([](auto& part) { part.clear_points(); }), HasSubstr("not 1 to 64"));
  EXPECT_THAT(refusal_of([](auto& part) { *part.add_points() = part.points(0); }),
              HasSubstr("out of order"));
  EXPECT_THAT(refusal_of([](auto& part) { part.set_expert(1); }), HasSubstr("belongs under"));
}

}  // namespace
}  // namespace skerry::coordinator
