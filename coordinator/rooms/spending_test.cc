// SPDX-License-Identifier: Apache-2.0
// What runs cost, and what keeps them from costing more.
#include "coordinator/rooms/spending.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/testing/testing.h"

namespace skerry::coordinator {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using testing::expert;
using testing::Harness;
using ::testing::HasSubstr;
using testing::held_by;
using ::testing::SizeIs;
using testing::Who;

constexpr double kShare = 0.001;  // of a sum: what it may be off

class Money : public ::testing::Test {
 protected:
  // The nodes go on saying that they live.
  void pass(Duration time, std::vector<Who*> nodes) {
    harness.run_for(time, [&] {
      for (Who* each : nodes) harness.heartbeat(*each);
    });
  }
  pb::RunInfo run(const std::string& name = "a") { return harness.run(name); }
  double idle() {
    return harness.admin_ask([](pb::AdminRequest& request) { request.mutable_status(); })
        .status()
        .idle_dollars();
  }
  pb::RunSpec spec(double dollars, double an_hour = 0, double of_node = 0) {
    pb::RunSpec made = testing::run_spec("a", 10'000);
    made.set_budget_dollars(dollars);
    made.set_budget_dollars_per_hour(an_hour);
    made.set_max_node_price(of_node);
    return made;
  }
  void change(const pb::RunBudget& budget) {
    harness.admin_ask([&](pb::AdminRequest& request) {
      *request.mutable_run_budget() = budget;
      request.mutable_run_budget()->set_run("a");
    });
  }
  void raise(double dollars) {
    pb::RunBudget budget;
    budget.set_dollars(dollars);
    change(budget);
  }
  std::string why() {
    std::string all;
    const auto reply = harness.admin_ask(
        [](pb::AdminRequest& request) { request.mutable_run_why()->set_name("a"); });
    for (const std::string& reason : reply.why().reasons()) all += reason + "\n";
    return all;
  }
  std::size_t held() {
    return static_cast<std::size_t>(std::ranges::count_if(
        harness.core().experts(), [](const ExpertView& each) { return each.lease.has_value(); }));
  }
  void say(Who& who, pb::SlotPhase phase, Step step, const pb::SlotAssignment& slot) {
    pb::Heartbeat beat = testing::heartbeat_of(slot, phase);
    beat.mutable_slots(0)->set_step(step);
    harness.heartbeat(who, std::move(beat));
  }
  // The node asks whether it may.
  bool may_stop(Who& who) {
    pb::Heartbeat beat;
    beat.set_idle(true);
    return harness.heartbeat(who, std::move(beat)).may_stop();
  }

  Harness harness;
};

TEST_F(Money, ALeasePaysItsSlotsShareOfTheNode) {
  Who node = harness.join_priced("n", 3.6, 2);
  harness.create_run("a", 1, 10'000);
  const double idle_before = idle();
  pass(hours(1), {&node});
  EXPECT_NEAR(run().dollars(), 1.8, 1.8 * kShare);
  EXPECT_NEAR(run().experts(0).dollars(), 1.8, 1.8 * kShare);
  EXPECT_NEAR(run().dollars_per_hour(), 1.8, 1e-9);
  EXPECT_EQ(run().experts(0).cards(), 1U);
  EXPECT_NEAR(idle() - idle_before, 1.8, 1.8 * kShare);
}

TEST_F(Money, AnUnknownPriceCostsNothing) {
  Who node = harness.join("n");
  harness.create_run("a", 1, 10'000);
  pass(minutes(10), {&node});
  EXPECT_EQ(run().dollars(), 0);
  for (const auto& [key, value] : harness.disk) EXPECT_FALSE(key.starts_with("spending/"));
}

TEST_F(Money, OnlyConnectedSecondsCount) {
  Who node = harness.join_priced("n", 3.6);
  harness.create_run("a", 1, 10'000);
  pass(seconds(100), {&node});
  const double before = run().dollars();
  harness.step(Closed{node.connection});
  harness.run_for(seconds(50));
  EXPECT_NEAR(run().dollars(), before, 1e-9);
  EXPECT_EQ(run().dollars_per_hour(), 0);
  harness.reconnect(node);
  pass(seconds(100), {&node});
  EXPECT_NEAR(run().dollars(), 0.2, 0.2 * kShare);
}

TEST_F(Money, EachLeasePaysForItsOwnTime) {
  Who node = harness.join_priced("n", 3.6);
  pb::RunSpec turns = spec(0);
  turns.set_turn_rounds(1);
  harness.create_run("other", 2, 10);
  harness.create_run(turns);
  pass(seconds(30), {&node});
  harness.commit_round(node);
  pass(seconds(70), {&node});
  const double sum = run("other").dollars() + run("a").dollars();
  EXPECT_NEAR(sum, 0.1, 0.1 * kShare);
}

TEST_F(Money, ARestartNeitherLosesNorDoublesTime) {
  Who node = harness.join_priced("n", 3600);  // a dollar a second
  harness.create_run("a", 1, 10'000);
  double down = 0;
  for (int i = 0; i < 20; ++i) {
    pass(milliseconds(10'300), {&node});
    harness.restart();
    node.connection.clear();
    node.sequence = 0;
    pass(milliseconds(700), {});
    harness.hello(node);
    down += 0.7;
  }
  const double connected = 20 * 10.3;
  EXPECT_LE(run().dollars(), connected * (1 + kShare));
  // At most a second of each life.
  EXPECT_GE(run().dollars(), connected - 20 * 1.0 * (1 + kShare));
  EXPECT_GT(down, 0);
}

TEST_F(Money, SumsThatAStalledDiskHeldBackAreWrittenAfterwards) {
  Who node = harness.join_priced("n", 3600);
  harness.create_run("a", 1, 10'000);
  pass(seconds(10), {&node});
  harness.disk_stalls = true;
  pass(seconds(30), {&node});
  harness.disk_stalls = false;
  harness.persist();
  pass(seconds(3), {&node});
  const double before = run().dollars();
  harness.restart();
  EXPECT_NEAR(run().dollars(), before, 1.001);
  EXPECT_NEAR(before, 43, 0.5);
}

TEST_F(Money, APastBudgetPausesAfterTheCommits) {
  Who node = harness.join_priced("n", 3600);
  harness.add_dataset("data", 1);
  harness.create_run(spec(100));
  pass(seconds(99), {&node});
  EXPECT_EQ(run().state(), "running");
  EXPECT_FALSE(harness.assignment(node).slots(0).yield_after_commit());
  pass(seconds(2), {&node});
  EXPECT_TRUE(harness.assignment(node).slots(0).yield_after_commit());
  EXPECT_TRUE(held_by(harness, node));  // its round ends by a commit
  EXPECT_EQ(run().state(), "paused");
  EXPECT_THAT(harness.events("budget"), SizeIs(1));
  EXPECT_THAT(harness.events("budget")[0].reason(), HasSubstr("its budget of 100.00 dollars"));
  EXPECT_THAT(why(), HasSubstr("`skerry run budget a --dollars N`"));
  EXPECT_THAT(why(), HasSubstr("of its 100.00 dollars"));
  const auto slot = harness.assignment(node).slots(0);
  EXPECT_EQ(harness.commit(node, testing::next_commit(slot)).status(), pb::COMMIT_ACCEPTED);
  harness.return_lease(node, slot, "paused");
  EXPECT_EQ(held(), 0U);
  EXPECT_THAT(harness.events("lease_lost"), SizeIs(0));
  const double spent = run().dollars();
  pass(minutes(5), {&node});
  EXPECT_NEAR(run().dollars(), spent, 1e-9);
}

TEST_F(Money, OnlyMoreMoneyResumesIt) {
  Who node = harness.join_priced("n", 3600);
  harness.add_dataset("data", 1);
  harness.create_run(spec(10));
  pass(seconds(12), {&node});
  EXPECT_EQ(run().state(), "paused");
  harness.admin_ask([](pb::AdminRequest& request) { request.mutable_run_resume()->set_name("a"); });
  EXPECT_THAT(harness.last_error.message(), HasSubstr("raises its budget"));
  raise(5);
  EXPECT_EQ(harness.last_error.code(), "invalid");
  EXPECT_THAT(harness.last_error.message(), HasSubstr("expected more than the 12.00 dollars"));
  EXPECT_EQ(run().state(), "paused");
  harness.restart();
  node.connection.clear();
  harness.hello(node);
  EXPECT_EQ(run().state(), "paused");
  raise(20);
  EXPECT_EQ(run().state(), "running");
  EXPECT_FALSE(harness.assignment(node).slots(0).yield_after_commit());
  pass(seconds(10), {&node});
  EXPECT_EQ(run().state(), "paused");
  raise(0);  // no limit
  EXPECT_EQ(run().state(), "running");
  pass(minutes(5), {&node});
  EXPECT_EQ(run().state(), "running");
}

TEST_F(Money, WhatAPersonPausedStaysPaused) {
  Who node = harness.join_priced("n", 3600);
  harness.add_dataset("data", 1);
  harness.create_run(spec(10));
  pass(seconds(12), {&node});
  harness.admin_ask([](pb::AdminRequest& request) { request.mutable_run_pause()->set_name("a"); });
  raise(20);
  EXPECT_EQ(run().state(), "paused");
  harness.admin_ask([](pb::AdminRequest& request) { request.mutable_run_resume()->set_name("a"); });
  EXPECT_EQ(run().state(), "running");
}

TEST_F(Money, ADearNodeGetsNoGrant) {
  Who dear = harness.join_priced("dear", 2.0);
  harness.add_dataset("data", 1);
  harness.create_run(spec(0, 0, 0.5));
  EXPECT_FALSE(expert(harness).lease);
  EXPECT_THAT(why(), HasSubstr("on a node of at most 0.50 dollars an hour"));
  Who cheap = harness.join_priced("cheap", 0.5);
  EXPECT_TRUE(held_by(harness, cheap));
}

TEST_F(Money, NoGrantExceedsTheRate) {
  std::vector<Who> nodes;
  for (const std::string name : {"b", "c", "d"}) nodes.push_back(harness.join_priced(name, 1.0));
  harness.add_dataset("data", 3);
  harness.create_run(spec(0, 2.5));
  EXPECT_EQ(held(), 2U);
  EXPECT_NEAR(run().dollars_per_hour(), 2.0, 1e-9);
  EXPECT_THAT(why(), HasSubstr("waits for its budget: 1 slot is free"));
  EXPECT_THAT(why(), HasSubstr("budget.dollars_per_hour"));
  Who small = harness.join_priced("small", 0.4);
  EXPECT_EQ(held(), 3U);
  EXPECT_TRUE(held_by(harness, small, 2));
  pb::RunBudget more;
  more.set_dollars_per_hour(0.5);  // leases that are there stay
  change(more);
  EXPECT_EQ(held(), 3U);
}

TEST_F(Money, AfterARestartNoGrantIsMadeBeforeTheHoldersPricesAreKnown) {
  std::vector<Who> nodes;
  for (const std::string name : {"b", "c", "d"}) nodes.push_back(harness.join_priced(name, 1.0));
  harness.add_dataset("data", 3);
  harness.create_run(spec(0, 2.5));
  EXPECT_EQ(held(), 2U);
  harness.restart();
  const auto is_holder = [&](const Who& who) {
    return std::ranges::any_of(harness.core().experts(), [&](const ExpertView& each) {
      return each.lease && each.lease->node == who.id;
    });
  };
  std::ranges::sort(nodes, {}, is_holder);  // the one without a lease is back first
  for (Who& node : nodes) {
    node.connection.clear();
    harness.hello(node);
    harness.heartbeat(node);
    EXPECT_EQ(held(), 2U) << node.name;
  }
  EXPECT_NEAR(run().dollars_per_hour(), 2.0, 1e-9);
}

TEST_F(Money, AtItsRateTheExpertsOfARunStillTakeTurns) {
  Who one = harness.join_priced("one", 1.0);
  Who two = harness.join_priced("two", 1.0);
  harness.add_dataset("data", 2);
  pb::RunSpec made = spec(0, 1.0);
  made.set_turn_rounds(2);
  harness.create_run(made);
  EXPECT_EQ(held(), 1U);
  Who& holder = expert(harness).lease && held_by(harness, one) ? one : two;
  const bool first = expert(harness, 0).lease.has_value();
  for (int i = 0; i < 2; ++i) {
    pass(seconds(10), {&one, &two});
    harness.commit_round(holder);
  }
  const auto slot = harness.assignment(holder).slots(0);
  EXPECT_TRUE(slot.yield_after_commit());
  harness.return_lease(holder, slot, "turn over");
  EXPECT_EQ(held(), 1U);
  EXPECT_EQ(expert(harness, first ? 1 : 0).lease.has_value(), true);
}

TEST_F(Money, AClockThatJumpsIsToldOf) {
  Who node = harness.join_priced("n", 3600);
  harness.create_run("a", 1, 10'000);
  pass(seconds(10), {&node});
  harness.now.unix_ms -= 86'400'000;  // the wall clock counts for nothing
  pass(seconds(10), {&node});
  EXPECT_NEAR(run().dollars(), 20, 0.3);
  harness.now.boot += hours(8);
  harness.step(Tick{});
  EXPECT_NEAR(run().dollars(), 80, 0.5);
  EXPECT_THAT(harness.events("budget"), SizeIs(1));
  EXPECT_THAT(harness.events("budget")[0].reason(), HasSubstr("its clock jumped"));
}

TEST_F(Money, StepsThatNobodyAcceptsAreLost) {
  Who node = harness.join_priced("n", 1);
  Who other = harness.join_priced("o", 1);
  harness.create_run("a", 1, 10'000);
  EXPECT_FALSE(run().has_goodput());
  Who& holder = held_by(harness, node) ? node : other;
  Who& heir = held_by(harness, node) ? other : node;
  harness.commit_round(holder);
  const auto slot = harness.assignment(holder).slots(0);
  say(holder, pb::SLOT_TRAINING, 18, slot);
  EXPECT_EQ(run().lost_steps(), 0U);
  say(holder, pb::SLOT_COMMITTING, 12, slot);  // between two engines
  EXPECT_EQ(run().lost_steps(), 0U);
  say(holder, pb::SLOT_TRAINING, 13, slot);  // an engine died
  EXPECT_EQ(run().lost_steps(), 5U);
  pass(seconds(20), {&heir});
  EXPECT_TRUE(held_by(harness, heir));
  EXPECT_EQ(run().lost_steps(), 8U);
  say(holder, pb::SLOT_TRAINING, 25, slot);  // what it had trained in silence
  EXPECT_EQ(run().lost_steps(), 20U);
  EXPECT_NEAR(run().goodput(), 10.0 / 30, 1e-9);
  pass(seconds(2), {&heir});
  harness.restart();
  EXPECT_EQ(run().lost_steps(), 20U);
}

TEST_F(Money, ARunThatIsDeletedTakesItsSumsAlong) {
  Who node = harness.join_priced("n", 3600);
  harness.create_run("a", 1, 10'000);
  pass(seconds(10), {&node});
  harness.admin_ask([](pb::AdminRequest& request) { request.mutable_run_stop()->set_name("a"); });
  harness.admin_ask([](pb::AdminRequest& request) { request.mutable_run_delete()->set_name("a"); });
  pass(seconds(10), {&node});
  std::size_t records = 0;
  for (const auto& [key, value] : harness.disk) records += key.starts_with("spending/") ? 1 : 0;
  EXPECT_EQ(records, 1U);  // of idle time
  harness.restart();
}

TEST_F(Money, AnIdleNodeMayStopIfNoRunWaits) {
  Who node = harness.join_priced("n", 1);
  EXPECT_FALSE(harness.heartbeat(node).may_stop());
  EXPECT_TRUE(may_stop(node));
  harness.create_run("a", 1, 100);
  EXPECT_FALSE(expert(harness).lease);  // it is given nothing from here on
  Who other = harness.join_priced("o", 1);
  EXPECT_TRUE(held_by(harness, other));
  EXPECT_FALSE(may_stop(other));  // it holds a lease
  harness.heartbeat(node);        // it changed its mind
  EXPECT_TRUE(may_stop(node));    // the run waits for nothing
}

// A run that it is too dear for waits for others.
TEST_F(Money, AnIdleNodeMayStopIfWhatWaitsDoesNotFitIt) {
  Who dear = harness.join_priced("dear", 10);
  harness.add_dataset("data", 1);
  pb::RunSpec made = spec(0);
  made.set_max_node_price(1);
  harness.create_run(made);
  EXPECT_FALSE(expert(harness).lease);
  EXPECT_TRUE(may_stop(dear));
  harness.heartbeat(dear);
  harness.admin_ask([](pb::AdminRequest& request) {
    request.mutable_run_budget()->set_run("a");
    request.mutable_run_budget()->set_max_node_price(20);
  });
  EXPECT_TRUE(held_by(harness, dear));
  EXPECT_FALSE(may_stop(dear));
}

// `run list` must not tell of what is over.
TEST_F(Money, TheReasonOfAWaitIsTheLatest) {
  harness.add_dataset("data", 1);
  pb::RunSpec made = spec(0);
  made.set_max_node_price(1);
  harness.create_run(made);
  EXPECT_THAT(run().reason(), HasSubstr("none is connected"));
  Who dear = harness.join_priced("dear", 10);
  pass(seconds(2), {&dear});
  EXPECT_THAT(run().reason(), HasSubstr("max_node_price"));
}

TEST_F(Money, NoCopyIsLeftWithItsLastNode) {
  Who holder = harness.join_priced("h", 1);
  harness.add_dataset("data", 1);
  pb::RunSpec made = spec(0);
  made.set_copies(2);
  harness.create_run(made);
  Who copy = harness.join_priced("c", 1);
  pass(seconds(2), {&holder, &copy});
  const auto commit = testing::next_commit(harness.assignment(holder).slots(0));
  harness.send_commit(holder, commit);
  harness.store(testing::object_of(commit));
  copy.applied = harness.assignment(copy).version();
  copy.durable = {commit.manifest().manifest()};
  EXPECT_FALSE(may_stop(copy)) << "the commit waits for nothing else";
  EXPECT_EQ(expert(harness).head_step, 10U);
  EXPECT_FALSE(may_stop(copy));
  Who second = harness.join_priced("s", 1);
  EXPECT_FALSE(may_stop(copy));
  pass(seconds(10), {&holder, &second});  // without the copy's node
  EXPECT_FALSE(may_stop(second)) << "its copy is on the way";
}

}  // namespace
}  // namespace skerry::coordinator
