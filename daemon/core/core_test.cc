// SPDX-License-Identifier: Apache-2.0
// The connection, assignments and leases of a daemon's core, rule by rule, on
// virtual time.
#include "daemon/core/core.h"

#include <gmock/gmock.h>

#include "base/text.h"
#include "daemon/testing/core_harness.h"
#include "protocol/limits.h"

namespace skerry::daemon {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
constexpr auto kIsHello = &pb::ControlRequest::has_hello;
constexpr auto kIsHeartbeat = &pb::ControlRequest::has_heartbeat;
constexpr auto kIsCommit = &pb::ControlRequest::has_commit;
constexpr auto kIsGet = &pb::ControlRequest::has_get_assignment;

TEST(Connection, HelloIsFirstAndNamesTheSlots) {
  Harness node({}, 2);
  EXPECT_TRUE(node.sent.empty());
  node.step(ConnectionOpened{});
  ASSERT_EQ(node.sent.size(), 1U);
  EXPECT_EQ(node.sent[0].hello().slots_size(), 2);
  EXPECT_EQ(node.sent[0].hello().incarnation(), 42U);
}

TEST(Connection, HelloIsSaidAgainUntilAnswered) {
  Harness node;
  node.step(ConnectionOpened{});
  node.sent.clear();
  node.pass(seconds(3));
  ASSERT_EQ(node.sent.size(), 1U);
  EXPECT_TRUE(node.sent[0].has_hello());
}

TEST(Connection, HeartbeatsGoOutEachSecondWithAGrowingSequence) {
  Harness node;
  node.connect();
  node.sent.clear();
  node.pass(milliseconds(3500));
  std::vector<std::uint64_t> sequences;
  for (const auto& request : node.sent) {
    if (request.has_heartbeat()) sequences.push_back(request.heartbeat().sequence());
  }
  EXPECT_THAT(sequences, testing::ElementsAre(2, 3, 4));
}

TEST(Connection, AFaultOfAPeerIsToldOnce) {
  Harness node;
  node.connect();
  pb::PeerFault fault;
  fault.set_peer("mallory");
  fault.set_manifest(blake2b("shard").raw());
  fault.set_kind(pb::PeerFault::FAULT_WRONG_BYTES);
  node.step(PeerFaulted{fault});
  node.pass(seconds(1));
  const pb::Heartbeat sent = node.last_sent(kIsHeartbeat).heartbeat();
  ASSERT_EQ(sent.faults_size(), 1);
  EXPECT_EQ(sent.faults(0).SerializeAsString(), fault.SerializeAsString());
  node.answer_heartbeat();
  node.pass(seconds(1));
  EXPECT_EQ(node.last_sent(kIsHeartbeat).heartbeat().faults_size(), 0);
}

TEST(Connection, WhatWasFetchedIsToldOnceAFewAtATime) {
  Harness node;
  const auto stored = [&](int number) {
    ObjectStored event{blake2b(text(number)), {}};
    event.transfer.set_manifest(event.manifest.raw());
    event.transfer.set_bytes(100);
    node.step(event);
  };
  for (int i = 0; i < 100; ++i) stored(i);  // while it is not connected: the last ones are kept
  node.connect();
  std::vector<std::string> told;
  const auto beat = [&] {
    if (!node.has_sent(kIsHeartbeat)) node.pass(seconds(1));
    const pb::Heartbeat sent = node.last_sent(kIsHeartbeat).heartbeat();
    EXPECT_LE(static_cast<std::size_t>(sent.transfers_size()), protocol::kTransfers);
    for (const auto& transfer : sent.transfers()) told.push_back(transfer.manifest());
    node.answer_heartbeat();
    return sent.transfers_size();
  };
  for (int i = 0; i < 10; ++i) beat();
  ASSERT_EQ(told.size(), 64U);
  EXPECT_EQ(told.front(), blake2b("36").raw());
  EXPECT_EQ(told.back(), blake2b("99").raw());
  node.step(ObjectStored{blake2b("was here"), {}});
  EXPECT_EQ(beat(), 0);
}

TEST(Connection, AfterSilenceItSaysHelloAgain) {
  Harness node;
  node.connect();
  node.sent.clear();
  node.pass(seconds(6));
  EXPECT_TRUE(node.has_sent(kIsHello));
}

TEST(Connection, AnErrorToAHeartbeatMeansHelloAgain) {
  Harness node;
  node.connect();
  node.refuse(node.last_sent(kIsHeartbeat).id(), ErrorCode::kConflict);
  node.sent.clear();
  node.pass(seconds(2));
  EXPECT_TRUE(node.has_sent(kIsHello));
}

TEST(Connection, AnUnauthorisedNodeLeavesForGood) {
  Harness node;
  node.step(ConnectionOpened{});
  node.refuse(node.last_sent(kIsHello).id(), ErrorCode::kUnauthorised);
  EXPECT_EQ(node.last.exit_code, 78);
}

TEST(Generation, ALowerOneThanSeenIsRefused) {
  Harness node;
  node.connect(3);
  Harness again({.state = node.saved});
  again.connect(2);
  EXPECT_FALSE(again.core->connected());
  again.sent.clear();
  again.pass(seconds(4));
  EXPECT_FALSE(again.has_sent(kIsHeartbeat));
  again.pass(seconds(2));
  again.answer_hello(3);
  EXPECT_TRUE(again.core->connected());
}

TEST(Generation, TheHighestSeenIsSaidInHello) {
  Harness node;
  node.connect(3);
  Harness again({.state = node.saved});
  again.step(ConnectionOpened{});
  EXPECT_EQ(again.last_sent(kIsHello).hello().generation(), 3U);
}

TEST(Generation, NothingIsAskedForBeforeItIsDurable) {
  Harness node;
  node.auto_persist = false;
  node.connect(3);
  EXPECT_FALSE(node.has_sent(kIsGet));
  node.step(Persisted{1});
  EXPECT_TRUE(node.has_sent(kIsGet));
}

TEST(State, CorruptRefusesToStart) {
  EXPECT_FALSE(Core::make({.incarnation = 1}, {.state = "\xff\xff garbage"}).has_value());
}

TEST(Assignment, FetchesThenStartsThenTrains) {
  Harness node;
  node.connect();
  auto grant = node.grant();
  *grant.mutable_head() = object("head");
  grant.set_head_step(50);
  grant.add_partitions(3);  // of the one shard, as the router's job has them
  node.assign({grant});
  ASSERT_EQ(node.last.fetches.size(), 2U);
  EXPECT_EQ(node.view().phase, pb::SLOT_FETCHING);
  node.stored("shard");
  EXPECT_FALSE(node.started());
  node.stored("head");
  ASSERT_TRUE(node.started());
  EXPECT_EQ(node.starts.back().resume.manifest(), object("head").manifest());
  EXPECT_EQ(node.starts.back().start.train().steps(), 1000U);
  EXPECT_EQ(node.starts.back().start.plan().round_steps(), 10U);
  ASSERT_EQ(node.starts.back().start.shard_partitions_size(), 1);
  EXPECT_EQ(node.starts.back().start.shard_partitions(0), 3U);
  node.take_engine();
  node.ready(50);
  EXPECT_EQ(node.view().phase, pb::SLOT_TRAINING);
  EXPECT_EQ(node.view().step, 50U);
}

TEST(Assignment, AFailedFetchIsTriedAgain) {
  Harness node;
  node.connect();
  node.assign({node.grant()});
  node.step(ObjectFailed{blake2b("shard"), fail(ErrorCode::kUnavailable, "away")});
  EXPECT_EQ(node.fetches.size(), 1U);
  node.pass(seconds(1));
  EXPECT_EQ(node.fetches.size(), 2U);
  node.stored("shard");
  EXPECT_TRUE(node.started());
}

TEST(Assignment, AnOlderOneThatComesLateChangesNothing) {
  Harness node;
  node.train();
  // A newer version is asked for; the answer carries an older one than was
  // applied.
  node.version = 5;
  node.answer_heartbeat();
  const auto asked = node.last_sent(kIsGet).id();
  auto old = node.reply_to(asked);
  old.mutable_assignment()->set_version(1);
  node.say(old);
  EXPECT_TRUE(node.view().has_lease);
}

TEST(Assignment, WithoutTheSlotDiscardsItsWork) {
  Harness node;
  node.train();
  node.assign({});
  ASSERT_EQ(node.last.stops.size(), 1U);
  EXPECT_EQ(node.last.stops[0].kind, StopKind::kKill);
  EXPECT_FALSE(node.view().has_lease);
}

TEST(Assignment, TheNextExpertWaitsForTheOldEngineToEnd) {
  Harness node;
  node.train();
  node.assign({node.grant(2, 0, 4)});
  EXPECT_FALSE(node.started());
  node.exit_engine("signal 9");
  node.stored("shard");
  EXPECT_TRUE(node.started());
  EXPECT_EQ(node.starts.back().start.expert(), 4U);
}

TEST(Assignment, ALowerEpochIsIgnored) {
  Harness node;
  node.connect();
  node.assign({node.grant(7)});
  node.assign({node.grant(6)});
  EXPECT_EQ(node.view().epoch, Epoch(1, 7));
}

TEST(Assignment, AHigherEpochStartsFromItsHead) {
  Harness node;
  node.train();
  node.round(0, 10);
  auto next = node.grant(2);
  *next.mutable_head() = object("other");
  next.set_head_step(5);
  node.assign({next});
  EXPECT_EQ(node.view().step, 5U);
  EXPECT_EQ(node.view().epoch, Epoch(1, 2));
  EXPECT_FALSE(node.view().commit_in_flight);
}

TEST(Lease, CountsFromBeforeTheRenewalWasSent) {
  Harness node;
  node.train();  // renewed at the current time
  node.pass(milliseconds(5699));
  EXPECT_TRUE(node.view().may_commit);
  node.pass(milliseconds(2));
  EXPECT_FALSE(node.view().may_commit);
}

TEST(Lease, ALateAnswerRenewsOnlyFromWhenItWasAsked) {
  Harness node;
  node.train();
  node.pass(seconds(1));
  const auto early = node.last_sent(kIsHeartbeat);
  node.pass(seconds(3));
  auto reply = node.reply_to(early.id());
  auto& lease = *reply.mutable_heartbeat()->add_renewed();
  lease.set_run("r-0000000001");
  lease.set_expert(3);
  lease.set_epoch(node.grant().epoch());
  node.say(reply);
  node.pass(milliseconds(2699));  // 1 s + 5.7 s after the first
  EXPECT_TRUE(node.view().may_commit);
  node.pass(milliseconds(2));
  EXPECT_FALSE(node.view().may_commit);
}

TEST(Lease, ExpiredItForbidsCommittingNotTraining) {
  Harness node;
  node.train();
  node.step(ConnectionClosed{"gone"});
  node.pass(seconds(10));
  node.sent.clear();
  node.round(0, 10);
  EXPECT_FALSE(node.has_sent(kIsCommit));
  EXPECT_TRUE(node.last.stops.empty());
  node.connect();
  EXPECT_EQ(node.last_sent(kIsHello).hello().held(0).step(), 10U);
  EXPECT_FALSE(node.has_sent(kIsCommit));
  node.answer_heartbeat();
  EXPECT_EQ(node.last_sent(kIsCommit).commit().to_step(), 10U);
}

TEST(Lease, OfflineItTrainsOnUpToTheLimitThenSnapshotsAndWaits) {
  Harness node;
  node.train();
  node.step(ConnectionClosed{"gone"});
  node.pass(seconds(10));
  node.round(0, 10);
  node.round(10, 20);
  EXPECT_TRUE(node.last.stops.empty());
  node.round(20, 30);
  ASSERT_EQ(node.last.stops.size(), 1U);
  EXPECT_EQ(node.last.stops[0].kind, StopKind::kSnapshotNow);
  node.finish_engine(30);
  EXPECT_FALSE(node.started());
  node.connect();
  node.answer_heartbeat();
  ASSERT_TRUE(node.started());
  EXPECT_EQ(node.starts.back().resume.manifest(), object("checkpoint 30").manifest());
  EXPECT_EQ(node.last_sent(kIsCommit).commit().from_step(), 0U);
  EXPECT_EQ(node.last_sent(kIsCommit).commit().to_step(), 30U);
}

}  // namespace
}  // namespace skerry::daemon
