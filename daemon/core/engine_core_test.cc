// SPDX-License-Identifier: Apache-2.0
// What the core does about engines: crash, hang, memory, non-finite weights,
// full disks, changed plans.
#include <gmock/gmock.h>

#include <cmath>

#include "daemon/testing/core_harness.h"
#include "protocol/limits.h"

namespace skerry::daemon {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
constexpr auto kIsReport = &pb::ControlRequest::has_engine_report;
constexpr auto kIsReturn = &pb::ControlRequest::has_return_lease;
constexpr auto kIsCommit = &pb::ControlRequest::has_commit;

// Fails the engine that runs and lets the next one come up, if there is one.
bool crash_and_restart(Harness& node) {
  node.exit_engine();
  for (int i = 0; i < 100 && !node.started(); ++i) node.live(milliseconds(500));
  if (!node.started()) return false;
  node.take_engine();
  node.ready(node.view().step);
  return true;
}

TEST(Engine, ACrashIsReportedWithItsLastLinesAndItStartsAgain) {
  Harness node;
  node.train();
  node.exit_engine("signal 11");
  const auto report = node.last_sent(kIsReport).engine_report();
  EXPECT_EQ(report.failure(), pb::EngineEvent::FAILURE_INTERNAL);
  EXPECT_THAT(report.reason(), testing::HasSubstr("signal 11"));
  EXPECT_EQ(report.last_lines(0), "last words");
  EXPECT_FALSE(report.gives_up());
  EXPECT_FALSE(node.started());
  node.now += seconds(1);
  node.step(Tick{});
  EXPECT_TRUE(node.started());
}

// The coordinator refuses a message with half a character in it, and its sender
// would retry it without end.
TEST(Engine, ALongReasonIsCutBetweenCharacters) {
  for (const std::string first : {"", "x"}) {
    Harness node;
    node.train();
    std::string words = first;
    while (words.size() < 2 * protocol::kReasonBytes) words += "\xc3\xa9";
    node.exit_engine(words);
    const pb::ControlRequest report = node.last_sent(kIsReport);
    EXPECT_TRUE(pb::ControlRequest().ParseFromString(report.SerializeAsString()));
    EXPECT_THAT(report.engine_report().reason(), testing::HasSubstr("\xc3\xa9"));
  }
}

TEST(Engine, StartsAgainFromTheLastLocalCheckpoint) {
  Harness node;
  node.train();
  node.round(0, 10);
  node.round(10, 20);
  node.exit_engine();
  node.now += seconds(1);
  node.step(Tick{});
  ASSERT_TRUE(node.started());
  EXPECT_EQ(node.starts.back().resume.manifest(), object("checkpoint 20").manifest());
}

TEST(Engine, RestartsAreBoundedAndThenTheLeaseComesBack) {
  Harness node;
  node.train();
  int restarts = 0;
  while (restarts < 20 && crash_and_restart(node)) ++restarts;
  EXPECT_EQ(restarts, 4);
  EXPECT_TRUE(node.last_sent(kIsReport).engine_report().gives_up());
  EXPECT_TRUE(node.has_sent(kIsReturn));
  EXPECT_FALSE(node.view().has_lease);
}

// As when it had to go on in smaller parts.
TEST(Engine, ASnapshotMayNameAnotherFingerprint) {
  Harness node;
  node.train();
  node.snapshot(0, 10, 0.5, "fake, smaller");
  EXPECT_EQ(node.last.stores.back().fingerprint, "fake, smaller");
  node.snapshot_stored(10);
  EXPECT_EQ(node.last_sent(&pb::ControlRequest::has_commit).commit().fingerprint(),
            "fake, smaller");
}

TEST(Engine, AnAcceptedCommitRestoresTheRestarts) {
  Harness node;
  node.train();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(crash_and_restart(node));
  node.round(0, 10);
  node.answer_commit(pb::COMMIT_ACCEPTED);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(crash_and_restart(node)) << i;
}

TEST(Engine, OldFailuresAreForgottenAfterAnHour) {
  Harness node;
  node.train();
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(crash_and_restart(node));
  for (int i = 0; i < 62; ++i) {
    node.progress(static_cast<Step>(i));
    node.sent.clear();
    node.live(seconds(59));
  }
  EXPECT_TRUE(crash_and_restart(node));
}

// A driver holds its process, as after an Xid: it does not end by SIGKILL.
TEST(Engine, OneThatDoesNotEndKeepsNoExpertFromOthers) {
  Harness node;
  node.train();
  node.progress(1);
  node.live(seconds(85));  // killed after a minute of silence
  EXPECT_FALSE(node.has_sent(kIsReturn));
  node.live(seconds(10));
  const auto report = node.last_sent(kIsReport).engine_report();
  EXPECT_TRUE(report.gives_up());
  EXPECT_TRUE(report.card_fault());
  EXPECT_THAT(report.reason(), testing::HasSubstr("does not end 30 s after SIGKILL"));
  EXPECT_EQ(node.last_sent(kIsReturn).return_lease().reason(), "cannot train");
  node.acknowledge(node.last_sent(kIsReport).id());
  node.acknowledge(node.last_sent(kIsReturn).id());
  node.sent.clear();
  node.assign({node.grant(2, 0, 4)});
  node.live(seconds(1));
  EXPECT_EQ(node.last_sent(kIsReturn).return_lease().expert(), 4U)
      << "the slot trains nothing until it ended";
  EXPECT_FALSE(node.started());
}

TEST(Engine, SilenceForAMinuteIsAHang) {
  Harness node;
  node.train();
  node.progress(1);
  node.live(seconds(59));
  EXPECT_TRUE(node.last.stops.empty());
  EXPECT_EQ(node.view().phase, pb::SLOT_TRAINING);
  node.live(seconds(3));
  node.exit_engine("signal 9", false);
  EXPECT_THAT(node.last_sent(kIsReport).engine_report().reason(), testing::HasSubstr("hung"));
}

TEST(Engine, TheFirstStepHasTenMinutes) {
  Harness node;
  node.train();
  node.live(seconds(599));
  EXPECT_EQ(node.view().phase, pb::SLOT_TRAINING);
  node.sent.clear();
  node.live(seconds(2));
  node.exit_engine("signal 9", false);
  EXPECT_THAT(node.last_sent(kIsReport).engine_report().reason(), testing::HasSubstr("hung"));
}

TEST(Engine, AStartMayTakeLongButNotInSilence) {
  Harness node;
  node.connect();
  node.assign({node.grant()});
  node.answer_heartbeat();
  node.stored("shard");
  node.take_engine();
  node.live(seconds(600));  // its checkpoint is being read: our disk, not the engine
  EXPECT_EQ(node.view().phase, pb::SLOT_STARTING);
  for (const std::string phase :
       {"loading the program", "opening the device", "reading the shards"}) {
    node.step(EngineStarting{.engine = node.engine, .phase = phase});
    node.live(seconds(119));
    ASSERT_TRUE(node.last.stops.empty()) << phase;
  }
  node.sent.clear();
  node.live(seconds(2));
  node.exit_engine("signal 9");
  EXPECT_THAT(node.last_sent(kIsReport).engine_report().reason(),
              testing::HasSubstr("hung while it started: no word since \"reading the shards\""));
}

TEST(Engine, ASlowEngineHasTenTimesItsUsualGap) {
  Harness node;
  node.train();
  node.live(seconds(20));
  node.progress(1);  // 20 s is usual now
  node.live(seconds(190));
  EXPECT_EQ(node.view().phase, pb::SLOT_TRAINING);
  node.sent.clear();
  node.live(seconds(12));
  node.exit_engine("signal 9");
  EXPECT_THAT(node.last_sent(kIsReport).engine_report().reason(), testing::HasSubstr("hung"));
}

TEST(Engine, ADaemonThatStoodStillBlamesNoEngine) {
  Harness node;
  node.train();
  node.progress(1);
  node.now += seconds(300);  // SIGSTOP
  node.step(Tick{});
  EXPECT_TRUE(node.last.stops.empty());
}

TEST(Engine, OutOfMemoryIsNamed) {
  Harness node;
  node.train();
  node.exit_engine("signal 9", true);
  EXPECT_EQ(node.last_sent(kIsReport).engine_report().failure(),
            pb::EngineEvent::FAILURE_OUT_OF_MEMORY);
}

// The card is named; its shards are used as they are when the engine starts
// again.
TEST(Engine, ACardFaultIsBlamedOnTheCardAndNotOnTheShards) {
  Harness node;
  node.train();
  EngineFailed event{.engine = node.engine};
  event.failed.set_failure(pb::EngineEvent::FAILURE_CARD);
  event.failed.set_reason("the card failed: CUDA error: an illegal memory access was encountered");
  node.step(event);
  node.exit_engine("exit code 1");
  const auto report = node.last_sent(kIsReport).engine_report();
  EXPECT_TRUE(report.card_fault());
  // What a coordinator of the version before takes.
  EXPECT_EQ(report.failure(), pb::EngineEvent::FAILURE_INTERNAL);
  EXPECT_EQ(report.reason(),
            "NVIDIA H200 of slot 0: the card failed: CUDA error: an illegal memory access was "
            "encountered");
  node.fetches.clear();
  node.live(seconds(2));
  ASSERT_TRUE(node.started());
  EXPECT_TRUE(node.fetches.empty());
  node.take_engine();
  event.engine = node.engine;
  event.failed.set_failure(pb::EngineEvent::FAILURE_BAD_INPUT);
  node.step(event);
  node.exit_engine("exit code 2");
  node.live(seconds(5));
  EXPECT_FALSE(node.fetches.empty());  // as a shard that an engine cannot use is looked at again
}

TEST(Engine, NonFiniteIsReportedNotCommittedAndWaitsForANewAttempt) {
  Harness node;
  node.train();
  EngineFailed event{.engine = node.engine};
  event.failed.set_failure(pb::EngineEvent::FAILURE_NON_FINITE);
  node.step(event);
  node.exit_engine("exit code 3");
  EXPECT_EQ(node.last_sent(kIsReport).engine_report().failure(),
            pb::EngineEvent::FAILURE_NON_FINITE);
  node.live(seconds(40));
  EXPECT_FALSE(node.has_sent(kIsCommit));
  EXPECT_EQ(node.view().phase, pb::SLOT_FAILED);
  auto next = node.grant();
  next.set_attempt(2);
  node.sent.clear();
  node.assign({next});
  ASSERT_TRUE(node.started());
  EXPECT_EQ(node.starts.back().start.attempt(), 2U);
  // And the next assignment of the same epoch and attempt changes nothing.
  node.assign({next});
  EXPECT_TRUE(node.view().has_lease);
}

TEST(Engine, ASnapshotWithANonFiniteLossIsNeverStored) {
  Harness node;
  node.train();
  node.snapshot(0, 10, std::nan(""));
  EXPECT_TRUE(node.last.stores.empty());
  EXPECT_EQ(node.last.stops.at(0).kind, StopKind::kKill);
  node.exit_engine("signal 9");
  EXPECT_EQ(node.last_sent(kIsReport).engine_report().failure(),
            pb::EngineEvent::FAILURE_NON_FINITE);
}

TEST(Engine, WordsOfAnOldEngineAreNothing) {
  Harness node;
  node.train();
  const auto old = node.engine;
  ASSERT_TRUE(crash_and_restart(node));
  const auto current = node.engine;
  node.engine = old;
  node.snapshot(0, 10);
  EXPECT_TRUE(node.last.stores.empty());
  node.exit_engine();
  node.engine = current;
  EXPECT_EQ(node.view().phase, pb::SLOT_TRAINING);
}

TEST(Engine, ASnapshotOutlivesItsEngine) {
  Harness node;
  node.train();
  node.snapshot(0, 10);
  node.exit_engine();
  node.live(seconds(3));
  EXPECT_FALSE(node.started());  // it waits for where to go on from
  node.snapshot_stored(10);
  ASSERT_TRUE(node.started());
  EXPECT_EQ(node.starts.back().resume.manifest(), object("checkpoint 10").manifest());
}

TEST(Engine, AFullDiskIsReportedOnceAndTriedAgain) {
  Harness node;
  node.train();
  node.snapshot(0, 10);
  for (int i = 0; i < 3; ++i) {
    node.step(SnapshotFailed{0, node.engine, fail(ErrorCode::kExhausted, "no space")});
    node.now += seconds(5);
    node.step(Tick{});
    ASSERT_EQ(node.last.stores.size(), 1U);
  }
  int reports = 0;
  for (const auto& request : node.sent) reports += request.has_engine_report() ? 1 : 0;
  EXPECT_LE(reports, 8);  // one report, retried while nobody acknowledges it
  node.snapshot_stored(10);
  EXPECT_EQ(node.view().step, 10U);
}

TEST(Engine, ACorruptCheckpointOfItsOwnIsLeftForTheOneBefore) {
  Harness node;
  node.train();
  node.round(0, 10);
  node.answer_commit(pb::COMMIT_ACCEPTED);
  node.step(ConnectionClosed{"gone"});
  node.pass(seconds(10));
  node.round(10, 20);
  node.exit_engine();
  node.pass(seconds(1));
  ASSERT_TRUE(node.started());
  node.take_engine();
  node.step(EngineExited{
      .engine = node.engine, .how = "", .resume_error = fail(ErrorCode::kCorrupt, "bad chunk")});
  EXPECT_EQ(node.view().step, 10U);
}

TEST(Engine, ACorruptHeadIsFetchedAgain) {
  Harness node;
  node.connect();
  auto grant = node.grant();
  *grant.mutable_head() = object("head");
  grant.set_head_step(50);
  node.assign({grant});
  node.stored("shard");
  node.stored("head");
  node.take_engine();
  node.step(EngineExited{
      .engine = node.engine, .how = "", .resume_error = fail(ErrorCode::kCorrupt, "bad chunk")});
  ASSERT_EQ(node.last.fetches.size(), 2U);  // shards are looked at again too
  EXPECT_TRUE(node.last.fetches[0].verify && node.last.fetches[1].verify);
}

TEST(Engine, TheTargetIsReachedThenExtended) {
  Harness node;
  node.train();
  node.round(0, 1000);
  node.finish_engine(1000);
  node.answer_commit(pb::COMMIT_ACCEPTED);
  EXPECT_FALSE(node.started());
  EXPECT_EQ(node.view().phase, pb::SLOT_IDLE);
  auto next = node.grant();
  next.set_steps_target(2000);
  node.assign({next});
  ASSERT_TRUE(node.started());
  EXPECT_EQ(node.starts.back().start.train().steps(), 2000U);
}

TEST(Engine, ANewPlanIsToldToTheRunningEngine) {
  Harness node;
  node.train();
  auto next = node.grant();
  next.mutable_spec()->set_round_steps(20);
  node.assign({next});
  ASSERT_EQ(node.last.plans.size(), 1U);
  EXPECT_EQ(node.last.plans[0].plan.round_steps(), 20U);
  EXPECT_TRUE(node.last.stops.empty());
}

TEST(Engine, OneThatStandsAtAnotherStepThanItsCheckpointIsRefused) {
  Harness node;
  node.connect();
  node.assign({node.grant()});
  node.stored("shard");
  node.take_engine();
  node.ready(5);
  EXPECT_EQ(node.last.stops.at(0).kind, StopKind::kKill);
}

}  // namespace
}  // namespace skerry::daemon
