// SPDX-License-Identifier: Apache-2.0
// Commits of a daemon's core, what is kept of them, and how work ends, rule by
// rule, on virtual time.
#include "daemon/core/core.h"

#include <gmock/gmock.h>

#include <set>

#include "daemon/testing/core_harness.h"

namespace skerry::daemon {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
constexpr auto kIsHeartbeat = &pb::ControlRequest::has_heartbeat;
constexpr auto kIsCommit = &pb::ControlRequest::has_commit;
constexpr auto kIsReturn = &pb::ControlRequest::has_return_lease;

TEST(Commit, OneInFlightThenTheNextCoversTheLongerSpan) {
  Harness node;
  node.train();
  node.round(0, 10);
  const auto first = node.last_sent(kIsCommit).commit();
  EXPECT_EQ(first.from_step(), 0U);
  EXPECT_EQ(first.to_step(), 10U);
  EXPECT_EQ(first.parent(), "");
  node.sent.clear();
  node.snapshot(10, 20);
  EXPECT_EQ(node.last.stores.at(0).parent, object("checkpoint 10").manifest());
  node.snapshot_stored(20);
  node.round(20, 30);
  EXPECT_FALSE(node.has_sent(kIsCommit));
  node.pass(seconds(1));
  EXPECT_EQ(node.last_sent(kIsCommit).commit().to_step(), 10U);
  node.answer_commit(pb::COMMIT_ACCEPTED);
  const auto second = node.last_sent(kIsCommit).commit();
  EXPECT_EQ(second.from_step(), 10U);
  EXPECT_EQ(second.to_step(), 30U);
  EXPECT_EQ(second.parent(), object("checkpoint 10").manifest());
  EXPECT_EQ(second.metrics().samples(), 20U * 8);
}

TEST(Commit, IsSentAgainWithTheSameBytesUntilAnswered) {
  Harness node;
  node.train();
  node.round(0, 10);
  const auto first = node.last_sent(kIsCommit);
  node.sent.clear();
  node.pass(milliseconds(900));
  auto again = node.last_sent(kIsCommit);
  EXPECT_NE(again.id(), first.id());
  again.set_id(first.id());
  EXPECT_EQ(again.SerializeAsString(), first.SerializeAsString());
}

TEST(Commit, FetchingIsNoAnswerAndTheSameIdMayBeAnsweredAgain) {
  Harness node;
  node.train();
  node.round(0, 10);
  node.answer_commit(pb::COMMIT_FETCHING);
  EXPECT_TRUE(node.view().commit_in_flight);
  node.answer_commit(pb::COMMIT_ACCEPTED);
  EXPECT_EQ(node.view().committed_step, 10U);
}

TEST(Commit, ADoubledOrLateAnswerDoesNothing) {
  Harness node;
  node.train();
  node.round(0, 10);
  auto late = node.reply_to(node.last_sent(kIsCommit).id());
  late.mutable_commit()->set_status(pb::COMMIT_FENCED);
  node.pass(milliseconds(900));
  node.answer_commit(pb::COMMIT_ACCEPTED);
  node.round(10, 20);
  node.say(late);
  EXPECT_TRUE(node.view().has_lease);
  EXPECT_EQ(node.view().committed_step, 10U);
}

TEST(Commit, AnAnswerOfTheLastConnectionIsNotTaken) {
  Harness node;
  node.train();
  node.round(0, 10);
  auto late = node.reply_to(node.last_sent(kIsCommit).id());
  late.mutable_commit()->set_status(pb::COMMIT_FENCED);
  node.step(ConnectionClosed{"gone"});
  node.connect();
  node.say(late);
  EXPECT_TRUE(node.view().has_lease);
}

TEST(Commit, FencedDiscards) {
  Harness node;
  node.train();
  node.round(0, 10);
  node.answer_commit(pb::COMMIT_FENCED);
  EXPECT_FALSE(node.view().has_lease);
  EXPECT_EQ(node.last.stops.at(0).kind, StopKind::kKill);
  // And a late assignment of that epoch does not bring it back.
  node.assign({node.grant()});
  EXPECT_FALSE(node.view().has_lease);
}

TEST(Commit, AStaleParentGoesOnFromTheHead) {
  Harness node;
  node.train();
  node.round(0, 10);
  auto reply = node.commit_reply(pb::COMMIT_STALE_PARENT);
  *reply.mutable_head() = object("their head");
  reply.set_head_step(7);
  node.answer_commit(reply);
  EXPECT_EQ(node.view().step, 7U);
  EXPECT_TRUE(node.view().has_lease);
  node.exit_engine("signal 9");
  ASSERT_EQ(node.last.fetches.size(), 1U);
  EXPECT_EQ(node.last.fetches[0].object.manifest(), object("their head").manifest());
}

TEST(Commit, ADuplicateAdoptsTheFirstManifest) {
  Harness node;
  node.train();
  node.round(0, 10);
  auto reply = node.commit_reply(pb::COMMIT_ACCEPTED);
  *reply.mutable_head() = object("the first");
  reply.set_head_step(10);
  node.answer_commit(reply);
  EXPECT_EQ(node.view().head, object("the first").manifest());
  EXPECT_EQ(node.view().committed_step, 10U);
}

TEST(Commit, TheAssignmentMaySayItWasAcceptedBeforeTheAnswerDoes) {
  Harness node;
  node.train();
  node.round(0, 10);
  node.round(10, 20);
  auto next = node.grant();
  *next.mutable_head() = object("checkpoint 10");
  next.set_head_step(10);
  const auto late = node.last_sent(kIsCommit).id();
  node.assign({next});
  EXPECT_EQ(node.view().committed_step, 10U);
  EXPECT_EQ(node.view().step, 20U);
  auto reply = node.reply_to(late);
  reply.mutable_commit()->set_status(pb::COMMIT_ACCEPTED);
  node.say(reply);
  EXPECT_EQ(node.view().committed_step, 10U);
}

TEST(Commit, ARestartedDaemonOffersItsWorkAgain) {
  Harness node;
  node.train();
  node.round(0, 10);
  node.round(10, 20);
  Harness again({.state = node.saved,
                 .objects = {{blake2b("checkpoint 10"), ObjectKind::kCheckpoint},
                             {blake2b("checkpoint 20"), ObjectKind::kCheckpoint},
                             {blake2b("garbage"), ObjectKind::kCheckpoint}}});
  again.step(ConnectionOpened{});
  ASSERT_EQ(again.sent[0].hello().held_size(), 1);
  EXPECT_EQ(again.sent[0].hello().held(0).step(), 20U);
  EXPECT_TRUE(again.last.drops.empty());
  again.answer_hello();
  again.assign({again.grant()});
  ASSERT_EQ(again.last.drops.size(), 1U);
  EXPECT_EQ(again.last.drops[0].manifest, blake2b("garbage"));
  again.stored("shard");
  again.stored("checkpoint 20");
  ASSERT_TRUE(again.started());
  EXPECT_EQ(again.starts.back().resume.manifest(), object("checkpoint 20").manifest());
  again.answer_heartbeat();
  EXPECT_EQ(again.last_sent(kIsCommit).commit().to_step(), 10U);
}

TEST(Commit, ACheckpointThatTheDiskLostIsForgotten) {
  Harness node;
  node.train();
  node.round(0, 10);
  node.answer_commit(pb::COMMIT_ACCEPTED);
  node.step(ConnectionClosed{"gone"});
  node.round(10, 20);
  Harness again({.state = node.saved});
  again.connect();
  again.assign({again.grant()});
  again.stored("shard");
  again.step(ObjectFailed{blake2b("checkpoint 20"), fail(ErrorCode::kNotFound, "nobody has it")});
  EXPECT_EQ(again.view().step, 10U);
}

TEST(Garbage, WhatWasFencedIsDroppedOnlyWithTheNextAssignment) {
  Harness node;
  node.train();
  node.round(0, 10);
  node.answer_commit(pb::COMMIT_FENCED);
  node.exit_engine("signal 9");
  node.pass(seconds(1));
  EXPECT_TRUE(node.drops.empty());
  node.assign({});
  ASSERT_EQ(node.drops.size(), 1U);
  EXPECT_EQ(node.drops[0].manifest, blake2b("checkpoint 10"));
}

TEST(Garbage, AHeadThatIsSupersededIsDropped) {
  Harness node;
  node.train();
  node.round(0, 10);
  node.answer_commit(pb::COMMIT_ACCEPTED);
  node.round(10, 20);
  EXPECT_TRUE(node.drops.empty());
  node.answer_commit(pb::COMMIT_ACCEPTED);
  ASSERT_EQ(node.drops.size(), 1U);
  EXPECT_EQ(node.drops[0].manifest, blake2b("checkpoint 10"));
}

TEST(Garbage, WhatWasHalfFetchedForATakeoverGoesWithIt) {
  Harness node;
  node.connect();
  pb::SlotAssignment next = node.grant();
  *next.mutable_head() = object("head");
  next.set_head_step(40);
  node.assign({next});
  ASSERT_EQ(node.fetches.size(), 2U);
  node.step(ObjectProgress{blake2b("head"), 500, 1000});
  EXPECT_TRUE(node.drops.empty());
  node.assign({});  // somebody else has it
  ASSERT_EQ(node.drops.size(), 1U);
  EXPECT_EQ(node.drops[0].manifest, blake2b("head"));
  EXPECT_THAT(node.cancelled, testing::Contains(blake2b("head")));
  node.stored("head");  // its end crossed the cancel; the drop follows it at the disk
  EXPECT_EQ(node.drops.size(), 1U);
}

TEST(Garbage, WhatAnEarlierLifeHalfFetchedGoesOnceTheAssignmentIsKnown) {
  Harness again({.state = "",
                 .objects = {{blake2b("half"), ObjectKind::kCheckpoint},
                             {blake2b("shard"), ObjectKind::kShard}},
                 .partial = {blake2b("half"), blake2b("shard")}});
  again.connect();
  again.live(seconds(1));
  EXPECT_TRUE(again.drops.empty());
  again.assign({});
  ASSERT_EQ(again.drops.size(), 1U) << "a shard stays for the next turn";
  EXPECT_EQ(again.drops[0].manifest, blake2b("half"));
}

// Whole, in part, or waiting to be asked for again.
TEST(Garbage, AFullDiskTakesEveryFileThatNobodyWants) {
  Harness node;
  node.connect();
  pb::SlotAssignment first = node.grant();
  *first.add_shards() = object("second shard");
  node.assign({first});
  node.stored("shard");
  node.step(ObjectFailed{blake2b("second shard"), fail(ErrorCode::kUnavailable, "nobody has it")});
  node.assign({});
  EXPECT_TRUE(node.drops.empty());
  pb::SlotAssignment other = node.grant(2, 0, 4);
  *other.mutable_shards(0) = object("third shard");
  node.assign({other});
  node.step(ObjectFailed{blake2b("third shard"), fail(ErrorCode::kExhausted, "no space")});
  std::set<Hash> dropped;
  for (const DropObject& each : node.drops) dropped.insert(each.manifest);
  EXPECT_THAT(dropped, testing::UnorderedElementsAre(blake2b("shard"), blake2b("second shard")));
}

TEST(Kept, TheHeadStaysAfterTheLeaseAndAfterARestart) {
  Harness node;
  node.train();
  node.round(0, 10);
  node.answer_commit(pb::COMMIT_ACCEPTED);
  node.round(10, 20);
  node.assign({});  // the lease is over, and what was not committed with it
  node.exit_engine("signal 9");
  node.assign({});
  ASSERT_EQ(node.drops.size(), 1U);
  EXPECT_EQ(node.drops[0].manifest, blake2b("checkpoint 20"));
  ASSERT_EQ(node.core->kept().size(), 1U);
  EXPECT_EQ(node.core->kept()[0].step, 10U);
  EXPECT_EQ(node.core->kept()[0].object.manifest(), object("checkpoint 10").manifest());
  Harness again(
      {.state = node.saved, .objects = {{blake2b("checkpoint 10"), ObjectKind::kCheckpoint}}});
  again.connect();
  again.assign({});
  EXPECT_TRUE(again.drops.empty());
  EXPECT_EQ(again.core->kept().size(), 1U);
  EXPECT_TRUE(Harness({.state = node.saved}).core->kept().empty());  // the disk lost it
}

TEST(Kept, AFullDiskTakesTheOldestThatNobodyTrains) {
  Harness node;
  node.train();
  node.round(0, 10);
  node.answer_commit(pb::COMMIT_ACCEPTED);
  node.assign({node.grant(2, 0, 4)});
  node.exit_engine("signal 9");
  node.stored("shard");
  node.take_engine();
  node.ready();
  node.answer_heartbeat();
  node.snapshot(0, 30);
  node.snapshot_stored(30);
  node.answer_commit(pb::COMMIT_ACCEPTED);
  EXPECT_EQ(node.core->kept().size(), 2U);
  node.snapshot(30, 40);
  for (int i = 0; i < 2; ++i)
    node.step(SnapshotFailed{0, node.engine, fail(ErrorCode::kExhausted, "no space")});
  ASSERT_EQ(node.drops.size(), 1U);
  EXPECT_EQ(node.drops[0].manifest, blake2b("checkpoint 10"));
  ASSERT_EQ(node.core->kept().size(), 1U);
  EXPECT_EQ(node.core->kept()[0].expert.index, 4U);
}

TEST(Kept, NothingOfADeletedRun) {
  Harness node;
  node.train();
  node.round(0, 10);
  node.answer_commit(pb::COMMIT_ACCEPTED);
  node.step(RunGone{"r-0000000001"});
  EXPECT_EQ(node.core->kept().size(), 1U);  // it is being trained: the assignment decides
  node.assign({});
  node.exit_engine("signal 9");
  node.step(RunGone{"r-another"});
  EXPECT_EQ(node.core->kept().size(), 1U);
  node.step(RunGone{"r-0000000001"});
  EXPECT_TRUE(node.core->kept().empty());
  node.assign({});
  ASSERT_EQ(node.drops.size(), 1U);
  EXPECT_EQ(node.drops[0].manifest, blake2b("checkpoint 10"));
}

// What `skerryd verify` names while no daemon runs is not whole when the next
// one starts.
TEST(Kept, OneThatIsFoundDamagedIsNotKept) {
  Harness node;
  node.train();
  node.round(0, 10);
  node.answer_commit(pb::COMMIT_ACCEPTED);
  node.assign({});
  node.exit_engine("signal 9");
  ASSERT_EQ(node.core->kept().size(), 1U);
  Harness again({.state = node.saved,
                 .objects = {{blake2b("checkpoint 10"), ObjectKind::kCheckpoint}},
                 .partial = {blake2b("checkpoint 10")}});
  EXPECT_TRUE(again.core->kept().empty());
  again.connect();
  again.assign({});
  ASSERT_EQ(again.drops.size(), 1U);

  node.step(
      ObjectFailed{blake2b("checkpoint 10"), fail(ErrorCode::kCorrupt, "a chunk is damaged")});
  EXPECT_TRUE(node.core->kept().empty());
}

TEST(Kept, FilesThatAreFoundDamagedComeAgain) {
  Harness node;
  node.train();
  node.step(HoldFiles{{object("router")}});
  node.stored("router");
  node.fetches.clear();
  const auto is_damaged = [&](const std::string& name) {
    node.step(ObjectFailed{blake2b(name), fail(ErrorCode::kCorrupt, "a chunk is damaged")});
  };
  is_damaged("router");
  ASSERT_EQ(node.fetches.size(), 1U) << "at once";
  EXPECT_EQ(node.fetches[0].object.manifest(), object("router").manifest());
  EXPECT_TRUE(node.fetches[0].verify);
  is_damaged("shard");
  EXPECT_EQ(node.fetches.size(), 1U) << "an engine has it open";
  node.exit_engine("exit code 1");
  node.live(seconds(30));
  ASSERT_EQ(node.fetches.size(), 2U) << "before the next engine starts";
  EXPECT_EQ(node.fetches[1].object.manifest(), object("shard").manifest());
  EXPECT_TRUE(node.fetches[1].verify);
}

TEST(Kept, FilesBesideThemAreFetchedAndStayWhenTheDiskIsFull) {
  Harness node;
  node.connect();
  node.assign({});
  node.step(HoldFiles{{object("router"), object("statistics")}});
  ASSERT_EQ(node.fetches.size(), 2U);
  EXPECT_EQ(node.fetches[0].object.manifest(), object("router").manifest());
  node.stored("router");
  node.step(ObjectFailed{blake2b("statistics"), fail(ErrorCode::kExhausted, "no space")});
  EXPECT_TRUE(node.drops.empty());
}

TEST(Yield, SnapshotsCommitsAndReturnsTheLease) {
  Harness node;
  node.train();
  auto next = node.grant();
  next.set_yield_after_commit(true);
  node.assign({next});
  ASSERT_EQ(node.last.stops.size(), 1U);
  EXPECT_EQ(node.last.stops[0].kind, StopKind::kSnapshotNow);
  node.round(0, 7);
  node.finish_engine(7);
  EXPECT_FALSE(node.has_sent(kIsReturn));
  node.answer_heartbeat();
  node.pass(seconds(1));
  node.answer_commit(pb::COMMIT_ACCEPTED);
  ASSERT_TRUE(node.has_sent(kIsReturn));
  EXPECT_FALSE(node.view().has_lease);
  // Said until acknowledged; an assignment of that epoch is not taken up again
  // meanwhile.
  node.assign({next});
  EXPECT_FALSE(node.view().has_lease);
  node.sent.clear();
  node.pass(seconds(3));
  ASSERT_TRUE(node.has_sent(kIsReturn));
  node.acknowledge(node.last_sent(kIsReturn).id());
  node.sent.clear();
  node.pass(seconds(3));
  EXPECT_FALSE(node.has_sent(kIsReturn));
}

TEST(Yield, WhatFollowsACommitOnItsWayIsCommittedToo) {
  Harness node;
  node.train();
  node.round(0, 10);
  ASSERT_EQ(node.last_sent(kIsCommit).commit().to_step(), 10U);
  auto next = node.grant();
  next.set_yield_after_commit(true);
  node.assign({next});
  node.round(10, 13);
  node.finish_engine(13);
  node.answer_heartbeat();
  node.pass(seconds(3));  // and so is asked for again
  node.answer_commit(pb::COMMIT_ACCEPTED);
  EXPECT_FALSE(node.has_sent(kIsReturn));
  EXPECT_EQ(node.last_sent(kIsCommit).commit().to_step(), 13U);
  node.answer_commit(pb::COMMIT_ACCEPTED);
  EXPECT_TRUE(node.has_sent(kIsReturn));
}

TEST(Drain, CommitsReturnsAndExits) {
  Harness node;
  node.train();
  node.step(DrainRequested{});
  EXPECT_EQ(node.last.stops.at(0).kind, StopKind::kSnapshotNow);
  EXPECT_TRUE(node.last_sent(kIsHeartbeat).heartbeat().draining());
  node.answer_keeping();
  node.round(0, 4);
  node.finish_engine(4);
  node.answer_commit(pb::COMMIT_ACCEPTED);
  EXPECT_FALSE(node.last.exit_code.has_value());
  node.acknowledge(node.last_sent(kIsReturn).id());
  EXPECT_EQ(node.last.exit_code, 0);
}

TEST(Drain, IsBounded) {
  Harness node;
  node.train();
  node.step(DrainRequested{});
  node.pass(milliseconds(19900));
  EXPECT_FALSE(node.last.exit_code.has_value());
  node.pass(milliseconds(200));
  EXPECT_EQ(node.last.exit_code, 75);
}

TEST(Drain, ASecondSignalLeavesAtOnce) {
  Harness node;
  node.train();
  node.step(DrainRequested{});
  node.step(DrainRequested{});
  EXPECT_EQ(node.last.exit_code, 0);
}

TEST(Drain, AnIdleNodeLeavesOnceItIsHeard) {
  Harness node;
  node.connect();
  node.step(DrainRequested{});
  EXPECT_FALSE(node.last.exit_code.has_value());
  EXPECT_TRUE(node.last_sent(kIsHeartbeat).heartbeat().draining());
  node.answer_heartbeat();
  EXPECT_EQ(node.last.exit_code, 0);
}

TEST(Drain, AnIdleNodeThatNobodyHearsLeavesAtOnce) {
  Harness node;
  node.step(DrainRequested{});
  EXPECT_EQ(node.last.exit_code, 0);
}

TEST(Drain, NewWorkIsGivenBack) {
  Harness node({}, 2);
  node.connect();
  node.assign({node.grant(1, 0, 3)});
  node.stored("shard");
  node.take_engine();
  node.ready();
  node.step(DrainRequested{});
  node.assign({node.grant(1, 0, 3), node.grant(2, 1, 4)});
  EXPECT_EQ(node.last_sent(kIsReturn).return_lease().expert(), 4U);
}

}  // namespace
}  // namespace skerry::daemon
