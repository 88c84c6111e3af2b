// SPDX-License-Identifier: Apache-2.0
// What the core does when the platform announces the machine's end.
#include <gmock/gmock.h>

#include "daemon/testing/core_harness.h"
#include "protocol/limits.h"

namespace skerry::daemon {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
constexpr auto kIsHeartbeat = &pb::ControlRequest::has_heartbeat;
constexpr auto kIsReturn = &pb::ControlRequest::has_return_lease;
constexpr auto kIsCommit = &pb::ControlRequest::has_commit;

void notice(Harness& node, Duration left, const std::string& what = "AWS: terminate") {
  node.step(NoticeReceived{node.now + left, what});
}

pb::Heartbeat last_beat(const Harness& node) { return node.last_sent(kIsHeartbeat).heartbeat(); }

// A round whose snapshot takes 2 s to store and 3 s to commit.
void measured_round(Harness& node) {
  node.train();
  node.snapshot(0, 10);
  node.live(seconds(2));
  node.snapshot_stored(10);
  node.live(seconds(3));
  node.answer_commit(pb::COMMIT_ACCEPTED);
  node.progress(15);
  node.answer_heartbeat();
}

TEST(Notice, AHeartbeatSaysTheTimeLeftBeforeAllElse) {
  Harness node;
  node.train();
  notice(node, seconds(15));
  ASSERT_TRUE(node.last.sends.at(0).has_heartbeat());
  const pb::Heartbeat beat = node.last.sends.at(0).heartbeat();
  EXPECT_TRUE(beat.draining());
  EXPECT_EQ(beat.leaves_in_ms(), 15'000U);
  EXPECT_EQ(beat.notice(), "AWS: terminate");
  EXPECT_EQ(node.last.stops.at(0).kind, StopKind::kSnapshotNow);
  node.answer_keeping();
  node.pass(seconds(1));
  EXPECT_EQ(last_beat(node).leaves_in_ms(), 14'000U);
}

TEST(Notice, GoesOutBeforeACommitOfTheSameStep) {
  Harness node;
  node.train();
  node.snapshot(0, 10);
  node.pass(seconds(8));  // the lease has run out: what is stored waits for it
  node.snapshot_stored(10);
  ASSERT_FALSE(node.has_sent(kIsCommit));
  node.answer_hello();
  node.answer_heartbeat();
  ASSERT_TRUE(node.has_sent(kIsCommit));
  node.sent.clear();
  node.pass(milliseconds(499));
  node.sent.clear();
  node.now += milliseconds(1);  // when the commit is sent again
  notice(node, seconds(30));
  ASSERT_TRUE(node.has_sent(kIsCommit));
  EXPECT_TRUE(node.last.sends.at(0).has_heartbeat());
}

TEST(Notice, TheNodeGivesItsLeaseBackAndStays) {
  Harness node;
  node.train();
  notice(node, seconds(15));
  node.answer_keeping();
  EXPECT_FALSE(node.core->has_left());
  node.round(0, 4);
  node.finish_engine(4);
  node.answer_commit(pb::COMMIT_ACCEPTED);
  EXPECT_EQ(node.last_sent(kIsReturn).return_lease().reason(), "drain");
  EXPECT_FALSE(node.core->has_left());
  node.acknowledge(node.last_sent(kIsReturn).id());
  EXPECT_TRUE(node.core->has_left());
  node.live(seconds(70));
  EXPECT_FALSE(node.last.exit_code.has_value());
}

TEST(Notice, OnlyTheCheckpointsOnTheirWayGoOut) {
  Harness node;
  node.train();
  node.round(0, 4);
  EXPECT_THAT(node.core->urgent(), testing::IsEmpty()) << "nothing ends";
  notice(node, seconds(15));
  const std::string sent = node.last_sent(kIsCommit).commit().manifest().manifest();
  EXPECT_THAT(node.core->urgent(), testing::ElementsAre(*Hash::from_raw(sent)));
  node.answer_commit(pb::COMMIT_ACCEPTED);
  EXPECT_THAT(node.core->urgent(), testing::IsEmpty());
}

TEST(Notice, ANodeThatLivesAMinutePastTheDeadlineWorksAgain) {
  Harness node;
  node.connect();
  notice(node, seconds(15));
  node.live(seconds(74));
  EXPECT_TRUE(last_beat(node).draining());
  EXPECT_EQ(last_beat(node).leaves_in_ms(), 0U);
  node.live(seconds(2));
  EXPECT_FALSE(last_beat(node).draining());
  EXPECT_FALSE(last_beat(node).has_leaves_in_ms());
  EXPECT_EQ(last_beat(node).notice(), "");
  node.assign({node.grant()});
  node.stored("shard");
  EXPECT_TRUE(node.started());
}

TEST(Notice, WorkThatCouldNotBeGivenBackGoesOnAMinuteLater) {
  Harness node;
  node.train();
  notice(node, seconds(15));
  node.round(0, 4);
  node.finish_engine(4);
  node.live(seconds(74));  // the commit is not answered
  EXPECT_FALSE(node.started());
  node.live(seconds(2));
  EXPECT_TRUE(node.started());
}

TEST(Notice, NewWorkIsGivenBack) {
  Harness node;
  node.connect();
  notice(node, seconds(15));
  node.assign({node.grant()});
  EXPECT_TRUE(node.has_sent(kIsReturn));
}

TEST(Notice, AdviceOnlyAsksForNoNewLease) {
  Harness node;
  node.train();
  node.step(NoticeReceived{std::nullopt, "AWS: rebalance recommendation"});
  EXPECT_TRUE(node.last.stops.empty());
  node.answer_heartbeat();
  node.pass(seconds(1));
  EXPECT_TRUE(last_beat(node).no_new_work());
  EXPECT_FALSE(last_beat(node).draining());
  EXPECT_FALSE(last_beat(node).has_leaves_in_ms());
  EXPECT_EQ(last_beat(node).notice(), "AWS: rebalance recommendation");
  node.step(NoticeReceived{std::nullopt, ""});
  node.answer_heartbeat();
  node.pass(seconds(1));
  EXPECT_FALSE(last_beat(node).no_new_work());
  EXPECT_TRUE(node.view().has_lease);
}

TEST(Notice, ALastSnapshotIsTakenIfItFits) {
  Harness node;
  measured_round(node);
  notice(node, milliseconds(6000));  // needs 5 s, and 1 s of margin
  ASSERT_EQ(node.last.stops.size(), 1U);
  EXPECT_EQ(node.last.stops[0].kind, StopKind::kSnapshotNow);
  EXPECT_FALSE(node.has_sent(kIsReturn));
}

TEST(Notice, WithoutTimeForASnapshotTheLeaseGoesBackAtOnce) {
  Harness node;
  measured_round(node);
  notice(node, milliseconds(5990));
  ASSERT_EQ(node.last.stops.size(), 1U);
  EXPECT_EQ(node.last.stops[0].kind, StopKind::kKill);
  EXPECT_EQ(node.last_sent(kIsReturn).return_lease().reason(), "no time for a last snapshot");
}

TEST(Notice, TheDrainLimitBoundsTheSnapshotToo) {
  Harness node;
  node.train();
  node.snapshot(0, 10);
  node.live(seconds(11));
  node.snapshot_stored(10);
  node.live(seconds(10));
  node.answer_commit(pb::COMMIT_ACCEPTED);
  notice(node, seconds(120));  // the limit is 20 s, a snapshot needs 21 s
  EXPECT_TRUE(node.has_sent(kIsReturn));
}

TEST(Notice, TheCommitInFlightCountsAndIsWaitedFor) {
  Harness node;
  measured_round(node);
  node.snapshot(10, 20);
  node.live(seconds(2));
  node.snapshot_stored(20);
  ASSERT_EQ(node.last_sent(kIsCommit).commit().to_step(), 20U);
  node.live(seconds(1));
  notice(node, milliseconds(7900));  // 2 s of the commit are left, then 5 s
  EXPECT_TRUE(node.last.stops.empty());
  node.live(seconds(1));
  EXPECT_FALSE(node.has_sent(kIsReturn));
  EXPECT_TRUE(node.last.stops.empty());
  node.now += milliseconds(1000);
  node.answer_commit(pb::COMMIT_ACCEPTED);
  EXPECT_TRUE(node.has_sent(kIsReturn));
  EXPECT_EQ(node.last.stops.at(0).kind, StopKind::kKill);
}

// A round that ends behind the commit in flight, while the engine trains on.
void trains_on_behind_a_commit(Harness& node, Duration left) {
  measured_round(node);
  node.snapshot(10, 20);
  node.live(seconds(2));
  node.snapshot_stored(20);
  notice(node, left);
  node.snapshot(20, 30);
  node.live(seconds(2));
  node.snapshot_stored(30);
  node.now += seconds(1);
  EXPECT_FALSE(node.has_sent(kIsReturn));
  EXPECT_EQ(node.last_sent(kIsCommit).commit().to_step(), 20U);
  node.answer_commit(pb::COMMIT_ACCEPTED);
}

TEST(Notice, ARoundThatEndedMeanwhileIsCommittedIfItFits) {
  Harness node;
  trains_on_behind_a_commit(node, milliseconds(8000));  // 4 s are left, it needs 3 s
  EXPECT_FALSE(node.has_sent(kIsReturn));
  EXPECT_EQ(node.last_sent(kIsCommit).commit().to_step(), 30U);
  node.live(seconds(3));
  node.answer_commit(pb::COMMIT_ACCEPTED);
  EXPECT_TRUE(node.has_sent(kIsReturn));
}

TEST(Notice, ARoundThatEndedTooLateHoldsNoLeaseUp) {
  Harness node;
  trains_on_behind_a_commit(node, milliseconds(6500));  // 2.5 s are left
  EXPECT_EQ(node.last_sent(kIsReturn).return_lease().reason(), "no time for a last snapshot");
  EXPECT_EQ(node.last_sent(kIsCommit).commit().to_step(), 20U);
}

TEST(Notice, ASnapshotFitsBehindTheCommitInFlight) {
  Harness node;
  measured_round(node);
  node.snapshot(10, 20);
  node.live(seconds(2));
  node.snapshot_stored(20);
  node.live(seconds(1));
  notice(node, milliseconds(8000));
  ASSERT_EQ(node.last.stops.size(), 1U);
  EXPECT_EQ(node.last.stops[0].kind, StopKind::kSnapshotNow);
}

// Its bytes are partly there: it says nothing of the line.
TEST(Notice, ACommitThatALostConnectionInterruptedIsNotMeasured) {
  Harness node;
  node.train();
  node.snapshot(0, 10);
  node.live(seconds(15));
  node.snapshot_stored(10);
  node.step(ConnectionClosed{"test"});
  node.connect();
  node.answer_assignment();
  node.answer_heartbeat();
  node.live(seconds(15));
  node.answer_commit(pb::COMMIT_ACCEPTED);
  notice(node, seconds(10));
  ASSERT_EQ(node.last.stops.size(), 1U);
  EXPECT_EQ(node.last.stops[0].kind, StopKind::kSnapshotNow);
}

TEST(Notice, TheNearestDeadlineHolds) {
  Harness node;
  node.connect();
  notice(node, seconds(10));
  node.answer_heartbeat();
  notice(node, seconds(120), "SIGUSR1");
  EXPECT_EQ(last_beat(node).leaves_in_ms(), 10'000U);
}

TEST(Notice, SigtermAfterItEndsTheProcessOnceAllIsGivenBack) {
  Harness node;
  node.train();
  notice(node, seconds(4));
  node.answer_keeping();
  node.step(DrainRequested{});
  EXPECT_FALSE(node.last.exit_code.has_value());
  node.pass(milliseconds(2990));
  EXPECT_FALSE(node.last.exit_code.has_value());
  node.pass(milliseconds(20));
  EXPECT_EQ(node.last.exit_code, 75) << "its lease was not given back in time";
}

TEST(Notice, SigtermOfANodeThatHasLeftEndsItAtOnce) {
  Harness node;
  node.connect();
  notice(node, seconds(30));
  node.answer_heartbeat();
  ASSERT_TRUE(node.core->has_left());
  node.step(DrainRequested{});
  EXPECT_EQ(node.last.exit_code, 0);
}

TEST(Notice, SigtermSaysTheTimeLeftToo) {
  Harness node;
  node.train();
  node.step(DrainRequested{});
  EXPECT_EQ(last_beat(node).leaves_in_ms(), 20'000U);
  EXPECT_EQ(last_beat(node).notice(), "SIGTERM");
}

// The coordinator refuses a heartbeat that breaks a limit, and the lease ends.
TEST(Notice, ItsWordAndTimeStayWithinTheLimits) {
  Harness node;
  node.connect();
  notice(node, std::chrono::hours(1000), std::string(1000, 'x'));
  EXPECT_EQ(last_beat(node).leaves_in_ms(), protocol::kLeavesInMs);
  EXPECT_EQ(last_beat(node).notice().size(), protocol::kNoticeBytes);
}

}  // namespace
}  // namespace skerry::daemon
