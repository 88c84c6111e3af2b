// SPDX-License-Identifier: Apache-2.0
// Leases whose connected node comes no nearer to a commit.
#include <gmock/gmock.h>

#include <functional>

#include "coordinator/testing/testing.h"

namespace skerry::coordinator {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using testing::Harness;
using ::testing::HasSubstr;
using testing::held_by;
using testing::Who;

class Stall : public ::testing::Test {
 protected:
  Stall() {
    harness.config.stall = minutes(10);
    harness.restart();
  }

  // A run of rounds of 10 steps, and the node that trains it.
  void start(double round_seconds = 0) {
    harness.add_dataset("data", 1);
    pb::RunSpec made = testing::run_spec("a", 1'000'000);
    if (round_seconds > 0) {
      made.set_round_steps(0);
      made.set_round_seconds(round_seconds);
    } else {
      made.set_round_steps(10);
    }
    made.set_budget_dollars(1000);
    harness.create_run(made);
    node = harness.join_priced("n", 1);
    slot = harness.assignment(node).slots(0);
    ASSERT_TRUE(held_by(harness, node));
  }
  // Each second it says what its slot does.
  void pass(Duration time, std::function<void(pb::SlotStatus&)> each_second = {}) {
    harness.run_for(time, [&] {
      pb::Heartbeat beat = testing::heartbeat_of(slot, pb::SLOT_TRAINING);
      if (each_second) each_second(*beat.mutable_slots(0));
      harness.heartbeat(node, std::move(beat));
      if (!spare.connection.empty()) harness.heartbeat(spare);
    });
  }
  bool holds() { return held_by(harness, node) && harness.events("lease_lost").empty(); }

  Harness harness;
  Who node, spare;
  pb::SlotAssignment slot;
  // Each second it trains a step.
  const std::function<void(pb::SlotStatus&)> trains = [this](pb::SlotStatus& status) {
    status.set_step(++step_);
  };

 private:
  Step step_ = 0;
};

TEST_F(Stall, ANodeThatTrainsAndNeverCommitsLosesItsLease) {
  start();
  spare = harness.join_priced("spare", 1);
  pass(minutes(10), trains);
  EXPECT_TRUE(holds());
  pass(seconds(30), trains);
  ASSERT_FALSE(holds());
  EXPECT_TRUE(held_by(harness, spare));
  EXPECT_THAT(harness.events("lease_lost").at(0).reason(),
              HasSubstr("n has neither committed nor sent anything for 10 m"));
  EXPECT_EQ(harness.commit(node, testing::next_commit(slot)).status(), pb::COMMIT_FENCED);
}

TEST_F(Stall, ANodeThatCannotFetchLosesItsLease) {
  start();
  spare = harness.join_priced("spare", 1);
  pass(minutes(11), [](pb::SlotStatus& status) { status.set_phase(pb::SLOT_FETCHING); });
  EXPECT_TRUE(held_by(harness, spare));
}

TEST_F(Stall, WhatFetchesOnKeepsIt) {
  start();
  std::uint64_t bytes = 0;
  pass(minutes(40), [&](pb::SlotStatus& status) {
    status.set_phase(pb::SLOT_FETCHING);
    status.set_fetched_bytes(++bytes);
  });
  EXPECT_TRUE(holds());
}

TEST_F(Stall, ARoundMayTakeLong) {
  start(3600);
  pass(minutes(119), trains);
  EXPECT_TRUE(holds());
  pass(minutes(12), trains);
  EXPECT_FALSE(holds());
}

TEST_F(Stall, ACommitWhoseBytesComeKeepsIt) {
  start();
  const pb::Commit commit = testing::next_commit(slot);
  harness.send_commit(node, commit);
  const Hash object = *Hash::from_raw(commit.manifest().manifest());
  for (std::uint64_t minute = 0; minute < 40; ++minute) {
    harness.step(ObjectProgress{object, minute});
    pass(minutes(1));
  }
  EXPECT_TRUE(holds());
  pass(minutes(10));
  EXPECT_FALSE(holds());
}

TEST_F(Stall, WhoWaitsForThisDiskKeepsIt) {
  start();
  harness.step(DiskFree{0});
  pass(minutes(30));
  EXPECT_TRUE(holds());
  harness.step(DiskFree{1ULL << 40});
  pass(minutes(9));
  EXPECT_TRUE(holds());
  pass(minutes(2));
  EXPECT_FALSE(holds());
}

TEST_F(Stall, PastTheBudgetItIsTwoMinutes) {
  start();
  harness.admin_ask([](pb::AdminRequest& request) {
    request.mutable_run_budget()->set_run("a");
    request.mutable_run_budget()->set_dollars(0.01);
  });
  pass(seconds(36), trains);  // 0.01 dollars
  pass(seconds(115), trains);
  EXPECT_TRUE(holds());
  pass(seconds(15), trains);
  EXPECT_FALSE(holds());
  const double spent = harness.run("a").dollars();
  pass(minutes(10), trains);
  EXPECT_EQ(harness.run("a").dollars(), spent);
}

TEST_F(Stall, AStopOfTheCoordinatorIsNotTheNodes) {
  start();
  pass(minutes(9));
  harness.now.boot += minutes(5);
  harness.step(LoopLag{minutes(5)});
  pass(minutes(9));
  EXPECT_TRUE(holds());
}

}  // namespace
}  // namespace skerry::coordinator
