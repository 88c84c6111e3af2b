// SPDX-License-Identifier: Apache-2.0
#include "coordinator/rooms/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"

namespace skerry::coordinator {
namespace {

using ::testing::HasSubstr;

SchedulableExpert expert(std::uint32_t index, Step step = 0) {
  SchedulableExpert each;
  each.id = {RunId("r-1"), index};
  each.run_name = "fashion";
  each.step = step;
  each.steps_target = 100;
  return each;
}

SchedulableNode node(const std::string& name, std::uint32_t slots = 1) {
  SchedulableNode each;
  each.id = NodeId(name);
  each.name = name;
  for (std::uint32_t slot = 0; slot < slots; ++slot) each.slots.push_back(slot);
  return each;
}

SchedulableExpert held(SchedulableExpert each, const std::string& by, std::uint32_t rounds = 0) {
  each.holder = SlotId{NodeId(by), 0};
  each.rounds_in_turn = rounds;
  return each;
}

TEST(Scheduler, GivesTheFurthestBehindFirst) {
  const Schedule plan =
      schedule({expert(0, 50), expert(1, 20), expert(2, 30)}, {node("a"), node("b")});
  ASSERT_EQ(plan.grants.size(), 2U);
  EXPECT_EQ(plan.grants[0].expert.index, 1U);
  EXPECT_EQ(plan.grants[1].expert.index, 2U);
  EXPECT_THAT(plan.why[0].reason, HasSubstr("waits for a free node: all 2 slots of 2 nodes train"));
}

TEST(Scheduler, PrefersTheNodeThatHadIt) {
  SchedulableExpert returning = expert(0);
  returning.last_node = NodeId("b");
  const Schedule plan = schedule({returning}, {node("a"), node("b")});
  ASSERT_EQ(plan.grants.size(), 1U);
  EXPECT_EQ(plan.grants[0].slot.node, NodeId("b"));
  EXPECT_EQ(plan.spares, 1U);
}

TEST(Scheduler, ThenOneThatHoldsTheCheckpoint) {
  SchedulableExpert copied = expert(0, 10);
  copied.last_node = NodeId("gone");
  copied.warm = {NodeId("b"), NodeId("gone, too")};
  const Schedule plan = schedule({copied}, {node("a"), node("b"), node("c")});
  ASSERT_EQ(plan.grants.size(), 1U);
  EXPECT_EQ(plan.grants[0].slot.node, NodeId("b"));
  EXPECT_THAT(plan.grants[0].reason, HasSubstr("which holds its checkpoint"));
}

TEST(Scheduler, SpreadsOverNodesBeforeItFillsOne) {
  const Schedule plan = schedule({expert(0), expert(1)}, {node("a", 2), node("b", 2)});
  ASSERT_EQ(plan.grants.size(), 2U);
  EXPECT_NE(plan.grants[0].slot.node, plan.grants[1].slot.node);
  EXPECT_EQ(plan.spares, 2U);
}

TEST(Scheduler, NeverMovesAHeldLease) {
  const Schedule plan = schedule({held(expert(0, 10), "a"), held(expert(1, 90), "b", 50)},
                                 {node("a"), node("b"), node("c")});
  EXPECT_TRUE(plan.grants.empty());
  EXPECT_TRUE(plan.yields.empty());
  EXPECT_EQ(plan.spares, 1U);
}

TEST(Scheduler, ATurnEndsOnlyAfterItsRoundsAndForSomebodyBehind) {
  const std::vector<SchedulableNode> nodes = {node("a")};
  EXPECT_TRUE(schedule({held(expert(0, 40), "a", 3), expert(1)}, nodes).yields.empty());
  EXPECT_TRUE(schedule({held(expert(0, 40), "a", 4), expert(1, 41)}, nodes).yields.empty());
  const Schedule over = schedule({held(expert(0, 40), "a", 4), expert(1, 40)}, nodes);
  ASSERT_EQ(over.yields.size(), 1U);
  EXPECT_EQ(over.yields[0].expert.index, 0U);
  EXPECT_THAT(over.yields[0].reason, HasSubstr("expert 1 of fashion is behind"));
  EXPECT_THAT(over.why[1].reason, HasSubstr("takes over from expert 0"));
}

// Else its holder would give back at once what it has not begun.
TEST(Scheduler, NoTurnEndsBeforeItsFirstCommit) {
  for (const std::uint32_t rounds : {1U, 2U}) {
    SchedulableExpert holding = held(expert(0), "a");
    holding.turn_rounds = rounds;
    EXPECT_TRUE(schedule({holding, expert(1)}, {node("a")}).yields.empty()) << rounds;
    holding = held(expert(0, 10), "a", 1);
    holding.turn_rounds = rounds;
    EXPECT_EQ(schedule({holding, expert(1)}, {node("a")}).yields.size(), 1U) << rounds;
  }
}

TEST(Scheduler, OneTurnEndsForEachThatWaitsTheFurthestAheadFirst) {
  const Schedule plan =
      schedule({held(expert(0, 50), "a", 5), held(expert(1, 60), "b", 5), expert(2, 10)},
               {node("a"), node("b")});
  ASSERT_EQ(plan.yields.size(), 1U);
  EXPECT_EQ(plan.yields[0].expert.index, 1U);
}

TEST(Scheduler, APausedRunGivesItsLeasesBackAndCountsAsComingFree) {
  SchedulableExpert paused = held(expert(0, 10), "a");
  paused.wanted = false;
  paused.unwanted_because = "the run is paused";
  const Schedule plan =
      schedule({paused, held(expert(1, 50), "b", 9), expert(2, 10)}, {node("a"), node("b")});
  ASSERT_EQ(plan.yields.size(), 1U);
  EXPECT_EQ(plan.yields[0].expert.index, 0U);
}

TEST(Scheduler, UnusableAndAvoidedNodesGetNothing) {
  SchedulableNode cordoned = node("a");
  cordoned.usable = false;
  cordoned.unusable_because = "cordoned";
  SchedulableExpert picky = expert(0);
  picky.avoid = {NodeId("b")};
  const Schedule plan = schedule({picky}, {cordoned, node("b")});
  EXPECT_TRUE(plan.grants.empty());
  EXPECT_THAT(plan.why[0].reason, HasSubstr("gave it up lately"));
  EXPECT_THAT(schedule({expert(0)}, {cordoned}).why[0].reason, HasSubstr("a is cordoned"));
  EXPECT_THAT(schedule({expert(0)}, {}).why[0].reason, HasSubstr("none is connected"));
}

TEST(Scheduler, ADrainingNodesLeasesEnd) {
  SchedulableNode draining = node("a");
  draining.usable = false;
  draining.draining = true;
  const Schedule plan = schedule({held(expert(0), "a")}, {draining, node("b")});
  ASSERT_EQ(plan.yields.size(), 1U);
  EXPECT_THAT(plan.yields[0].reason, HasSubstr("a drains"));
}

}  // namespace
}  // namespace skerry::coordinator
