// SPDX-License-Identifier: Apache-2.0
#include "dashboard/notices.h"

#include <gtest/gtest.h>

namespace skerry::dashboard {
namespace {

using std::chrono::seconds;

pb::Event event(std::uint64_t number, const std::string& kind = "node_lost",
                const std::string& reason = "") {
  pb::Event made;
  made.set_number(number);
  made.set_kind(kind);
  made.set_reason(reason);
  return made;
}

std::uint64_t due(const Notices& notices, Duration now = {}) {
  const pb::Event* const found = notices.due(now);
  return found == nullptr ? 0 : found->number();
}

TEST(Notices, NameWhatAPersonWaitsFor) {
  EXPECT_EQ(notice_kind(event(1, "expert_done")), "expert_done");
  EXPECT_EQ(notice_kind(event(1, "engine_failed")), "expert_stuck");
  EXPECT_EQ(notice_kind(event(1, "budget")), "budget");
  EXPECT_EQ(notice_kind(event(1, "disk_full")), "disk_low");
  EXPECT_EQ(notice_kind(event(1, "run_state", "done")), "run_done");
  EXPECT_EQ(notice_kind(event(1, "run_state", "failed: no node")), "run_done");
  for (const char* going : {"running: an expert is being trained", "paused: budget", "waiting"})
    EXPECT_EQ(notice_kind(event(1, "run_state", going)), "") << going;
  EXPECT_EQ(notice_kind(event(1, "committed")), "");
}

TEST(Notices, TheFirstStartSendsNothingOfThePast) {
  Notices notices(std::nullopt);
  notices.offer({event(1), event(2)});
  EXPECT_EQ(due(notices), 0U);
  EXPECT_EQ(notices.cursor(), 2U);
  notices.offer({event(3, "committed"), event(4)});
  EXPECT_EQ(due(notices), 4U);
  EXPECT_EQ(notices.cursor(), 2U);
  notices.sent();
  EXPECT_EQ(due(notices), 0U);
  EXPECT_EQ(notices.cursor(), 4U);
}

TEST(Notices, ARestartGoesOnBehindTheCursor) {
  Notices notices(2);
  notices.offer({event(1), event(2), event(3), event(4)});
  EXPECT_EQ(due(notices), 3U);
  notices.sent();
  EXPECT_EQ(due(notices), 4U);
  notices.offer({event(1), event(2), event(3), event(4), event(5)});  // read anew
  notices.sent();
  EXPECT_EQ(due(notices), 5U);
}

TEST(Notices, AnotherCoordinatorsPastIsNotSent) {
  Notices notices(500);
  notices.offer({event(7), event(8)});
  EXPECT_EQ(due(notices), 0U);
  EXPECT_EQ(notices.cursor(), 8U);
  notices.offer({event(9)});
  EXPECT_EQ(due(notices), 9U);
}

TEST(Notices, RetriesWithGrowingPausesAndGivesUp) {
  Notices notices(0);
  notices.offer({event(1), event(2)});
  Duration now{};
  Duration longest{};
  for (int i = 1; i < Notices::kTries; ++i) {
    ASSERT_EQ(due(notices, now), 1U);
    EXPECT_FALSE(notices.failed(now));
    EXPECT_EQ(due(notices, now), 0U);
    const Duration start = now;
    while (due(notices, now) == 0) now += seconds(1);
    EXPECT_GE(now - start, longest);
    longest = now - start;
  }
  EXPECT_EQ(longest, Duration(Notices::kLongestPause));
  EXPECT_TRUE(notices.failed(now));
  EXPECT_EQ(due(notices, now), 2U);
  EXPECT_EQ(notices.cursor(), 1U);
}

TEST(Notices, TheQueueIsBounded) {
  Notices notices(0);
  std::vector<pb::Event> many;
  for (std::uint64_t i = 1; i <= Notices::kQueued + 10; ++i) many.push_back(event(i));
  notices.offer(many);
  EXPECT_EQ(notices.dropped(), 10U);
  EXPECT_EQ(due(notices), 11U);
}

}  // namespace
}  // namespace skerry::dashboard
