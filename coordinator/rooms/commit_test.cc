// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "coordinator/testing/testing.h"

namespace skerry::coordinator {
namespace {

using std::chrono::seconds;
using testing::Harness;
using ::testing::HasSubstr;
using testing::Who;

class Commits : public ::testing::Test {
 protected:
  Commits() : node(harness.join("n1")) { run = harness.create_run("fashion", 1); }

  pb::SlotAssignment slot() { return harness.assignment(node).slots(0); }
  ExpertView expert() { return harness.core().experts().at(0); }

  Harness harness;
  Who node;
  std::string run;
};

TEST_F(Commits, AreFetchedThenAcceptedOnce) {
  const pb::Commit commit = testing::next_commit(slot());
  EXPECT_EQ(harness.send_commit(node, commit).status(), pb::COMMIT_FETCHING);
  ASSERT_EQ(harness.fetches.size(), 1U);
  EXPECT_EQ(harness.fetches[0].from, node.id);
  EXPECT_EQ(harness.fetches[0].purpose, Purpose::kCheckpoint);
  EXPECT_FALSE(expert().head);
  harness.store(testing::object_of(commit));
  EXPECT_EQ(expert().head_step, 10U);
  ASSERT_FALSE(harness.inbox(node).empty());
  EXPECT_EQ(harness.inbox(node).back().commit().status(), pb::COMMIT_ACCEPTED);
  EXPECT_EQ(harness.events("committed").size(), 1U);

  const std::string state = harness.disk.at("run/" + run);
  EXPECT_EQ(harness.send_commit(node, commit).status(), pb::COMMIT_ACCEPTED);
  EXPECT_EQ(harness.events("committed").size(), 1U);
}

TEST_F(Commits, ADuplicateGetsTheFirstAnswerAfterARestartToo) {
  const pb::SlotAssignment from = slot();
  const pb::Commit commit = testing::next_commit(from);
  const pb::CommitReply first = harness.commit(node, commit);
  ASSERT_EQ(first.status(), pb::COMMIT_ACCEPTED);
  harness.restart();
  harness.reconnect(node);
  EXPECT_EQ(harness.commit(node, commit).SerializeAsString(), first.SerializeAsString());
  // S5: other bytes for the same span get the first's manifest.
  const pb::CommitReply other = harness.commit(node, testing::next_commit(from, 10, "other bytes"));
  EXPECT_EQ(other.status(), pb::COMMIT_ACCEPTED);
  EXPECT_EQ(other.head().manifest(), commit.manifest().manifest());
  EXPECT_EQ(harness.events("committed").size(), 1U);
}

TEST_F(Commits, AreAcknowledgedOnlyWhenDurable) {
  const pb::Commit commit = testing::next_commit(slot());
  harness.send_commit(node, commit);
  harness.disk_stalls = true;
  harness.inbox(node).clear();
  harness.store(testing::object_of(commit));
  EXPECT_TRUE(harness.inbox(node).empty());
  pb::ControlRequest again;
  *again.mutable_commit() = commit;
  EXPECT_TRUE(harness.send(node, again).empty()) << "a duplicate tells no more than is durable";
  harness.restart();  // the batch is lost; the object is not
  harness.disk_stalls = false;
  EXPECT_FALSE(expert().head);
  harness.reconnect(node);
  EXPECT_EQ(harness.send_commit(node, commit).status(), pb::COMMIT_ACCEPTED);
  EXPECT_TRUE(harness.fetches.empty());
}

TEST_F(Commits, OfAnOldEpochAreFencedAndChangeNothing) {
  const pb::Commit late = testing::next_commit(slot());
  Who spare = harness.join("n2");
  harness.run_for(seconds(9), [&] { harness.heartbeat(spare); });
  ASSERT_EQ(expert().lease->node, spare.id);
  const pb::CommitReply reply = harness.commit(node, late);
  EXPECT_EQ(reply.status(), pb::COMMIT_FENCED);
  EXPECT_EQ(harness.commit(node, late).status(), pb::COMMIT_FENCED);
  EXPECT_FALSE(expert().head);
  EXPECT_EQ(harness.events("fenced").size(), 1U);
  EXPECT_EQ(harness.commit_round(spare).status(), pb::COMMIT_ACCEPTED);
}

TEST_F(Commits, InFlightAreCancelledWhenTheLeaseMoves) {
  const pb::Commit commit = testing::next_commit(slot());
  harness.send_commit(node, commit);
  Who spare = harness.join("n2");
  harness.run_for(seconds(9), [&] { harness.heartbeat(spare); });
  ASSERT_EQ(harness.cancelled.size(), 1U);
  harness.store(testing::object_of(commit));  // it had just come in
  EXPECT_FALSE(expert().head);
  harness.run_for(harness.config.unclaimed_objects + seconds(1), [&] { harness.heartbeat(spare); });
  ASSERT_EQ(harness.dropped.size(), 1U);
}

TEST_F(Commits, WithAStaleParentAreToldTheHead) {
  const pb::SlotAssignment first = slot();
  ASSERT_EQ(harness.commit_round(node).status(), pb::COMMIT_ACCEPTED);
  const pb::CommitReply reply = harness.commit(node, testing::next_commit(first, 20));
  EXPECT_EQ(reply.status(), pb::COMMIT_STALE_PARENT);
  EXPECT_EQ(reply.head_step(), 10U);
  EXPECT_EQ(reply.head().manifest(), expert().head->raw());
}

TEST_F(Commits, ThatContradictTheirManifestAreRefused) {
  pb::Commit commit = testing::next_commit(slot());
  harness.send_commit(node, commit);
  ObjectStored object = testing::object_of(commit);
  object.facts.step = 11;
  harness.store(object);
  EXPECT_EQ(harness.inbox(node).back().commit().status(), pb::COMMIT_REFUSED);
  EXPECT_THAT(harness.events("refused").at(0).reason(),
              HasSubstr("its manifest is of step 11, not 10"));
  EXPECT_FALSE(expert().head);
}

TEST_F(Commits, OfNonFiniteWeightsAreRefused) {
  pb::Commit commit = testing::next_commit(slot());
  commit.mutable_metrics()->set_loss(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(harness.commit(node, commit).status(), pb::COMMIT_REFUSED);
}

TEST_F(Commits, WithCorruptBytesAreRefusedAndAnInterruptedOneIsAskedForAgain) {
  const pb::Commit commit = testing::next_commit(slot());
  harness.send_commit(node, commit);
  harness.step(
      ObjectFailed{*Hash::from_raw(commit.manifest().manifest()), "the connection closed", true});
  EXPECT_EQ(harness.send_commit(node, commit).status(), pb::COMMIT_FETCHING);
  harness.inbox(node).clear();
  harness.step(
      ObjectFailed{*Hash::from_raw(commit.manifest().manifest()), "not a manifest", false});
  EXPECT_EQ(harness.inbox(node).back().commit().status(), pb::COMMIT_REFUSED);
}

TEST_F(Commits, WaitForRoomOnTheDisk) {
  harness.step(DiskFree{1000});
  const pb::Commit commit = testing::next_commit(slot());
  pb::ControlRequest request;
  *request.mutable_commit() = commit;
  EXPECT_EQ(harness.ask(node, request).error().code(), "unavailable");
  EXPECT_EQ(harness.ask(node, request).error().code(), "unavailable");
  ASSERT_EQ(harness.events("disk_full").size(), 1U);
  harness.step(DiskFree{harness.config.reserve_bytes});  // not enough for this one
  EXPECT_TRUE(harness.events("disk_room").empty());
  harness.step(DiskFree{1ULL << 40});
  EXPECT_EQ(harness.events("disk_room").size(), 1U);
  EXPECT_EQ(harness.commit(node, commit).status(), pb::COMMIT_ACCEPTED);
}

TEST_F(Commits, KeepTheLastAndDropTheRest) {
  std::vector<Hash> heads;
  for (int i = 0; i < 4; ++i) {
    harness.commit_round(node);
    heads.push_back(*expert().head);
  }
  ASSERT_EQ(harness.dropped.size(), 2U);  // keep = 2
  EXPECT_EQ(harness.dropped[0].manifest, heads[0]);
  EXPECT_EQ(harness.dropped[1].manifest, heads[1]);
  harness.disk_stalls = true;
  const pb::Commit commit = testing::next_commit(slot());
  harness.send_commit(node, commit);
  harness.store(testing::object_of(commit));
  EXPECT_EQ(harness.dropped.size(), 2U) << "not before its batch is durable";
  harness.disk_stalls = false;
  harness.persist();
  heads.push_back(*expert().head);
  EXPECT_EQ(harness.dropped.size(), 3U);
  EXPECT_TRUE(harness.core().may_read(node.id, heads[4]));
  EXPECT_FALSE(harness.core().may_read(node.id, heads[3]));
}

TEST_F(Commits, StayWhileSomebodyFetchesThem) {
  harness.commit_round(node);
  const Hash read = *expert().head;
  harness.admin_ask(
      [](pb::AdminRequest& request) { request.mutable_ensemble()->set_name("fashion"); });
  const auto train_on = [&] { harness.heartbeat(node); };
  for (int i = 0; i < 4; ++i) harness.commit_round(node);
  harness.run_for(harness.config.unclaimed_objects + seconds(1), train_on);
  const auto dropped = [&] {
    return std::ranges::any_of(harness.dropped,
                               [&](const Drop& drop) { return drop.manifest == read; });
  };
  EXPECT_EQ(harness.dropped.size(), 2U);
  EXPECT_FALSE(dropped());
  harness.step(Closed{harness.admin.connection});
  harness.run_for(seconds(60), train_on);
  EXPECT_FALSE(dropped()) << "the link may come back";
  harness.run_for(harness.config.unclaimed_objects, train_on);
  EXPECT_TRUE(dropped());
}

TEST_F(Commits, ALeaseThatIsGivenBackStillAnswersItsLastCommitsDuplicate) {
  harness.admin_ask(
      [](pb::AdminRequest& request) { request.mutable_run_pause()->set_name("fashion"); });
  const pb::Commit commit = testing::next_commit(slot());
  EXPECT_EQ(harness.commit(node, commit).status(), pb::COMMIT_ACCEPTED);
  harness.return_lease(node, slot(), "turn over");
  EXPECT_FALSE(expert().lease);
  EXPECT_EQ(harness.commit(node, commit).status(), pb::COMMIT_ACCEPTED);
  EXPECT_EQ(harness.assignment(node).slots_size(), 0);
}

TEST_F(Commits, OnlyNonFiniteWeightsRaiseTheAttemptAndTheyAreBounded) {
  const auto report = [&](pb::EngineEvent::Failure failure, const std::string& reason) {
    pb::ControlRequest request;
    auto& said = *request.mutable_engine_report();
    said.set_run(run);
    said.set_epoch(expert().epoch.value());
    said.set_attempt(expert().attempt);
    said.set_failure(failure);
    said.set_reason(reason);
    said.add_last_lines("the engine's last words");
    harness.ask(node, request);
    harness.ask(node, request);  // said twice counts once
  };
  report(pb::EngineEvent::FAILURE_OUT_OF_MEMORY, "killed");
  EXPECT_EQ(expert().attempt, 0U);
  EXPECT_THAT(harness.events("engine_failed").at(0).reason(),
              HasSubstr("out of memory: killed | the engine's last words"));
  report(pb::EngineEvent::FAILURE_NON_FINITE, "step 7");
  EXPECT_EQ(expert().attempt, 1U);
  EXPECT_EQ(slot().attempt(), 1U);
  pb::Commit old_attempt = testing::next_commit(slot());
  old_attempt.set_attempt(0);
  EXPECT_EQ(harness.commit(node, old_attempt).status(), pb::COMMIT_REFUSED);
  EXPECT_EQ(harness.commit_round(node).status(), pb::COMMIT_ACCEPTED);
  for (std::uint32_t i = 0; i < harness.config.attempts; ++i) {
    EXPECT_EQ(harness.run("fashion").state(), "running");
    report(pb::EngineEvent::FAILURE_NON_FINITE, "step 17");
  }
  EXPECT_EQ(harness.run("fashion").state(), "failed");
  EXPECT_THAT(harness.run("fashion").reason(), HasSubstr("used up its 5 attempts"));
  EXPECT_EQ(harness.assignment(node).slots_size(), 0);
}

TEST_F(Commits, ACardFaultIsNamedAsOne) {
  pb::ControlRequest request;
  auto& said = *request.mutable_engine_report();
  said.set_run(run);
  said.set_epoch(expert().epoch.value());
  said.set_failure(pb::EngineEvent::FAILURE_INTERNAL);
  said.set_card_fault(true);
  said.set_reason("NVIDIA H200 of slot 0: CUDA error: unknown error");
  harness.ask(node, request);
  EXPECT_EQ(harness.events("engine_failed").at(0).reason(),
            "card fault: NVIDIA H200 of slot 0: CUDA error: unknown error");
  EXPECT_EQ(expert().attempt, 0U);
}

TEST_F(Commits, ANodeThatGivesUpIsNotGivenItAgain) {
  pb::ControlRequest request;
  auto& said = *request.mutable_engine_report();
  said.set_run(run);
  said.set_epoch(expert().epoch.value());
  said.set_failure(pb::EngineEvent::FAILURE_INTERNAL);
  said.set_reason("exit code 3");
  said.set_gives_up(true);
  harness.ask(node, request);
  EXPECT_FALSE(expert().lease);
  Who other = harness.join("n2");
  EXPECT_EQ(expert().lease->node, other.id);
}

}  // namespace
}  // namespace skerry::coordinator
