// SPDX-License-Identifier: Apache-2.0
#include "coordinator/rooms/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/text.h"

namespace skerry::coordinator {
namespace {

using ::testing::HasSubstr;

// One operation a step: the steps left are the work left.
SchedulableExpert expert(std::uint32_t index, Step step = 0) {
  SchedulableExpert each;
  each.id = {RunId("r-1"), index};
  each.run_name = "fashion";
  each.step = step;
  each.steps_target = 100;
  each.work = 100 - static_cast<double>(step);
  each.turn_rounds = 5;
  return each;
}

SchedulableNode node(const std::string& name, std::uint32_t slots = 1,
                     std::uint64_t memory_bytes = 0) {
  SchedulableNode each;
  each.id = NodeId(name);
  each.name = name;
  for (std::uint32_t slot = 0; slot < slots; ++slot) each.slots.push_back({slot, memory_bytes});
  return each;
}

SchedulableExpert held(SchedulableExpert each, const std::string& by, std::uint32_t rounds = 0,
                       std::uint32_t slot = 0) {
  each.holder = SlotId{NodeId(by), slot};
  each.rounds_in_turn = rounds;
  return each;
}

SchedulableExpert holding(SchedulableExpert each, const std::string& by, double seconds) {
  each.turn_rounds = 0;
  each.seconds_in_turn = seconds;
  return held(std::move(each), by, 1);
}

// All slots are alike, and every expert fits.
Schedule schedule(const std::vector<SchedulableExpert>& experts,
                  const std::vector<SchedulableNode>& nodes) {
  std::size_t slots = 0;
  for (const SchedulableNode& each : nodes) slots += each.slots.size();
  return coordinator::schedule(experts, nodes, {{std::vector<double>(slots, 1.0), "1 GB"}});
}

// Experts of one job, on nodes of one slot each with these speeds.
Schedule schedule(const std::vector<SchedulableExpert>& experts,
                  const std::vector<SchedulableNode>& nodes, std::vector<double> speeds) {
  return coordinator::schedule(experts, nodes, {{std::move(speeds), "1 GB"}});
}

std::map<std::uint32_t, std::string> reserved(const Schedule& plan) {
  std::map<std::uint32_t, std::string> found;
  for (const Reservation& each : plan.reservations) found[each.expert.index] = each.slot.node.str();
  return found;
}

TEST(Scheduler, GivesTheMostLeftFirst) {
  const Schedule plan =
      schedule({expert(0, 50), expert(1, 20), expert(2, 30)}, {node("a"), node("b")});
  ASSERT_EQ(plan.grants.size(), 2U);
  EXPECT_EQ(plan.grants[0].expert.index, 1U);
  EXPECT_EQ(plan.grants[1].expert.index, 2U);
  EXPECT_THAT(plan.why[0].reason, HasSubstr("waits for a free node: all 2 slots of 2 nodes train"));
}

TEST(Scheduler, TheFastestSlotGoesToTheMostLeft) {
  const Schedule plan =
      schedule({expert(0, 50), expert(1, 20)}, {node("a"), node("b"), node("c")}, {1, 5, 2});
  ASSERT_EQ(plan.grants.size(), 2U);
  EXPECT_EQ(plan.grants[0].slot.node, NodeId("b"));
  EXPECT_EQ(plan.grants[1].slot.node, NodeId("c"));
}

TEST(Scheduler, AmongEquallyFastSlotsTheSmallestIsTaken) {
  const Schedule plan = schedule({expert(0)}, {node("a", 1, 80), node("b", 1, 24)});
  ASSERT_EQ(plan.grants.size(), 1U);
  EXPECT_EQ(plan.grants[0].slot.node, NodeId("b"));
}

TEST(Scheduler, NothingGoesWhereItDoesNotFit) {
  const Schedule plan = schedule({expert(0)}, {node("a"), node("b")}, {0, 0});
  EXPECT_TRUE(plan.grants.empty());
  EXPECT_THAT(plan.why[0].reason, HasSubstr("waits for a larger card: it needs 1 GB"));
  const Schedule one = schedule({expert(0), expert(1)}, {node("a"), node("b")}, {9, 0});
  ASSERT_EQ(one.grants.size(), 1U);
  EXPECT_EQ(one.grants[0].slot.node, NodeId("a"));
  EXPECT_THAT(one.why[1].reason, HasSubstr("all 1 slots that fit it train; it needs 1 GB"));
}

// The large card is held by one that fits the small one, too.
TEST(Scheduler, AHolderMakesRoomForWhatFitsOnlyThere) {
  SchedulableExpert large = expert(1);
  large.job = 1;
  const std::vector<SchedulableNode> nodes = {node("large"), node("small")};
  const std::vector<SchedulableJob> jobs = {{{1, 1}, "1 GB"}, {{1, 0}, "50 GB"}};
  const Schedule begins = coordinator::schedule({held(expert(0), "large", 1), large}, nodes, jobs);
  EXPECT_TRUE(begins.grants.empty());
  ASSERT_EQ(begins.yields.size(), 1U);
  EXPECT_THAT(begins.yields[0].reason, HasSubstr("moves to small slot 0"));
  EXPECT_EQ(reserved(begins), (std::map<std::uint32_t, std::string>{{0, "small"}, {1, "large"}}));

  // It has given its lease back: both get what was kept for them.
  SchedulableExpert moving = expert(0);
  moving.reserved = SlotId{NodeId("small"), 0};
  large.reserved = SlotId{NodeId("large"), 0};
  const Schedule ends = coordinator::schedule({moving, large}, nodes, jobs);
  ASSERT_EQ(ends.grants.size(), 2U);
  EXPECT_TRUE(ends.reservations.empty());
  // A holder that has not begun stays.
  EXPECT_TRUE(coordinator::schedule({held(expert(0), "large"), large}, nodes, jobs).yields.empty());
}

TEST(Scheduler, OfEquallyFastSlotsOneWithItsFilesIsTaken) {
  SchedulableExpert copied = expert(0, 10);
  copied.bytes = 9;
  copied.lacks = {{NodeId("a"), 1}, {NodeId("b"), 0}, {NodeId("gone"), 0}};
  const Schedule plan = schedule({copied}, {node("a"), node("b"), node("c")}, {1.02, 1.01, 1.03});
  ASSERT_EQ(plan.grants.size(), 1U);
  EXPECT_EQ(plan.grants[0].slot.node, NodeId("b"));
  EXPECT_THAT(plan.grants[0].reason, HasSubstr("which holds its checkpoint"));
  EXPECT_EQ(plan.spares, 2U);
  // Speed counts for more.
  EXPECT_EQ(schedule({copied}, {node("a"), node("b")}, {2, 1}).grants[0].slot.node, NodeId("a"));
}

TEST(Scheduler, OneThatStandsByComesAfterOneWithTheFiles) {
  SchedulableExpert watched = expert(0, 10);
  watched.stands_by = NodeId("b");
  const std::vector<SchedulableNode> nodes = {node("a"), node("b"), node("c")};
  const Grant granted = schedule({watched}, nodes).grants.at(0);
  EXPECT_EQ(granted.slot.node, NodeId("b"));
  EXPECT_THAT(granted.reason, HasSubstr("which stands by for it"));
  watched.lacks = {{NodeId("c"), 0}};
  EXPECT_EQ(schedule({watched}, nodes).grants.at(0).slot.node, NodeId("c"));
  watched.stands_by = NodeId("gone");
  watched.lacks.clear();
  EXPECT_EQ(schedule({watched}, nodes).grants.at(0).slot.node, NodeId("a"));
}

TEST(Scheduler, SpreadsOverNodesBeforeItFillsOne) {
  const Schedule plan = schedule({expert(0), expert(1)}, {node("a", 2), node("b", 2)});
  ASSERT_EQ(plan.grants.size(), 2U);
  EXPECT_NE(plan.grants[0].slot.node, plan.grants[1].slot.node);
  EXPECT_EQ(plan.spares, 2U);
}

TEST(Scheduler, ALeaseStaysWhereNothingIsGained) {
  const Schedule plan = schedule({held(expert(0, 10), "a"), held(expert(1, 90), "b", 50)},
                                 {node("a"), node("b"), node("c")});
  EXPECT_TRUE(plan.grants.empty());
  EXPECT_TRUE(plan.yields.empty());
  EXPECT_EQ(plan.spares, 1U);
}

TEST(Scheduler, ATurnEndsOnlyAfterItsRoundsAndForSomebodyWithMoreLeft) {
  const std::vector<SchedulableNode> nodes = {node("a")};
  EXPECT_TRUE(schedule({held(expert(0, 40), "a", 3), expert(1)}, nodes).yields.empty());
  EXPECT_TRUE(schedule({held(expert(0, 40), "a", 4), expert(1, 41)}, nodes).yields.empty());
  const Schedule over = schedule({held(expert(0, 40), "a", 4), expert(1, 40)}, nodes);
  ASSERT_EQ(over.yields.size(), 1U);
  EXPECT_EQ(over.yields[0].expert.index, 0U);
  EXPECT_THAT(over.yields[0].reason, HasSubstr("expert 1 of fashion has more left"));
  EXPECT_THAT(over.why[1].reason, HasSubstr("takes over from expert 0"));
}

TEST(Scheduler, ATurnLastsItsSecondsAndFortyTimesWhatAMoveCosts) {
  const std::vector<SchedulableNode> nodes = {node("a")};
  SchedulableExpert waiting = expert(1);
  waiting.work = 1e6;
  EXPECT_TRUE(schedule({holding(expert(0), "a", 1199), waiting}, nodes).yields.empty());
  EXPECT_EQ(schedule({holding(expert(0), "a", 1200), waiting}, nodes).yields.size(), 1U);
  SchedulableExpert slow = holding(expert(0), "a", 1200);
  slow.start_seconds = 20;
  slow.bytes = 40;
  EXPECT_TRUE(schedule({slow, waiting}, nodes).yields.empty());
  slow.seconds_in_turn = 2400;
  EXPECT_EQ(schedule({slow, waiting}, nodes).yields.size(), 1U);
  // Half of the turn's work is the least that must be left more.
  waiting.work = slow.work + 1199;
  EXPECT_TRUE(schedule({slow, waiting}, nodes).yields.empty());
  waiting.work = slow.work + 1200;
  EXPECT_EQ(schedule({slow, waiting}, nodes).yields.size(), 1U);
}

// Else its holder would give back at once what it has not begun.
TEST(Scheduler, NoTurnEndsBeforeItsFirstCommit) {
  for (const std::uint32_t rounds : {1U, 2U}) {
    SchedulableExpert holder = held(expert(0), "a");
    holder.turn_rounds = rounds;
    EXPECT_TRUE(schedule({holder, expert(1)}, {node("a")}).yields.empty()) << rounds;
    holder = held(expert(0, 10), "a", 1);
    holder.turn_rounds = rounds;
    EXPECT_EQ(schedule({holder, expert(1)}, {node("a")}).yields.size(), 1U) << rounds;
  }
}

TEST(Scheduler, OneTurnEndsForEachThatWaitsTheLeastLeftFirst) {
  const Schedule plan =
      schedule({held(expert(0, 50), "a", 5), held(expert(1, 60), "b", 5), expert(2, 10)},
               {node("a"), node("b")});
  ASSERT_EQ(plan.yields.size(), 1U);
  EXPECT_EQ(plan.yields[0].expert.index, 1U);
}

// Each commit makes its expert the one with the least left.
TEST(Scheduler, WhoWasToldToGiveWayGoesOnTo) {
  SchedulableExpert told = held(expert(0, 50), "a", 5);
  told.yields = true;
  const Schedule plan =
      schedule({told, held(expert(1, 60), "b", 5), expert(2, 10)}, {node("a"), node("b")});
  ASSERT_EQ(plan.yields.size(), 1U);
  EXPECT_EQ(plan.yields[0].expert.index, 0U);
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

// Left on the slow slot it would end last; a move costs 3 s and gains 50 s.
TEST(Scheduler, TheLastToEndMovesToAFasterFreeSlot) {
  SchedulableExpert slow = held(expert(0), "a", 1);
  slow.start_seconds = 3;
  const std::vector<SchedulableNode> nodes = {node("a"), node("b")};
  const Schedule plan = schedule({slow}, nodes, {1, 2});
  ASSERT_EQ(plan.yields.size(), 1U);
  EXPECT_THAT(plan.yields[0].reason, HasSubstr("moves to b slot 0 at its next commit"));
  EXPECT_EQ(reserved(plan), (std::map<std::uint32_t, std::string>{{0, "b"}}));
  EXPECT_EQ(plan.spares, 0U) << "the slot is kept";
  slow.start_seconds = 13;  // 37 s are gained, three times the cost is more
  EXPECT_TRUE(schedule({slow}, nodes, {1, 2}).yields.empty());
  slow.start_seconds = 0;  // less than a tenth is gained
  EXPECT_TRUE(schedule({slow}, nodes, {1, 1.1}).yields.empty());
  slow.rounds_in_turn = 0;
  EXPECT_TRUE(schedule({slow}, nodes, {1, 2}).yields.empty());
}

// On the faster slot it saves 50 s.
TEST(Scheduler, AMoveCostsWhatTheNodeMustFetch) {
  SchedulableExpert slow = held(expert(0), "a", 1);
  slow.bytes = 1700;
  std::vector<SchedulableNode> nodes = {node("a"), node("b")};
  nodes[1].bytes_per_second = 100;
  EXPECT_TRUE(schedule({slow}, nodes, {1, 2}).yields.empty()) << "17 s, three times is more";
  slow.lacks = {{NodeId("a"), 0}, {NodeId("b"), 100}};
  EXPECT_EQ(schedule({slow}, nodes, {1, 2}).yields.size(), 1U) << "its copy is there in part";
  nodes[1].bytes_per_second = 1;
  EXPECT_TRUE(schedule({slow}, nodes, {1, 2}).yields.empty());
  slow.lacks[NodeId("b")] = 0;
  EXPECT_EQ(schedule({slow}, nodes, {1, 2}).yields.size(), 1U);
}

TEST(Scheduler, OrChangesPlacesWithOneThatEndsSooner) {
  const std::vector<SchedulableNode> nodes = {node("a"), node("b")};
  const Schedule plan =
      schedule({held(expert(0), "a", 1), held(expert(1, 90), "b", 1)}, nodes, {1, 4});
  EXPECT_EQ(plan.yields.size(), 2U);
  EXPECT_EQ(reserved(plan), (std::map<std::uint32_t, std::string>{{0, "b"}, {1, "a"}}));

  // The first has given its lease back and waits for the other.
  SchedulableExpert waits = expert(0);
  waits.reserved = SlotId{NodeId("b"), 0};
  SchedulableExpert leaves = held(expert(1, 90), "b", 1);
  leaves.reserved = SlotId{NodeId("a"), 0};
  const Schedule middle = schedule({waits, leaves}, nodes, {1, 4});
  EXPECT_TRUE(middle.grants.empty());
  EXPECT_EQ(middle.yields.size(), 1U);
  EXPECT_THAT(middle.why[0].reason, HasSubstr("waits for b slot 0"));
  EXPECT_EQ(reserved(middle), reserved(plan));
  // The other's slot is gone: both are ordinary again.
  const Schedule broken = schedule({waits, leaves}, {node("b")}, {4});
  EXPECT_TRUE(broken.reservations.empty());
  EXPECT_THAT(broken.why[0].reason, HasSubstr("waits for a free node"));
}

TEST(Scheduler, TheSameInputGivesTheSamePlan) {
  std::vector<SchedulableExpert> experts;
  std::vector<SchedulableNode> nodes;
  std::vector<double> speeds;
  for (std::uint32_t i = 0; i < 40; ++i) {
    experts.push_back(expert(i, i % 7));
    nodes.push_back(node("n" + std::to_string(i % 30 + 10), 1, i % 3));
    if (i < 30) speeds.push_back(1 + i % 5);
  }
  nodes.resize(30);
  const auto words = [&] {
    std::string all;
    for (const Why& why : schedule(experts, nodes, speeds).why) all += why.reason + "\n";
    return all;
  };
  EXPECT_EQ(words(), words());
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

// ---- Several cards ----

SchedulableNode cards(const std::string& name, std::uint32_t slots) {
  SchedulableNode each = node(name, slots);
  each.knows_cards = true;
  return each;
}

SchedulableExpert automatic(SchedulableExpert each) {
  each.cards = 0;
  each.batch = 64;
  each.at_commit = true;
  return each;
}

// All slots are alike; two cards are so many times as fast as one, if that was
// measured.
Schedule schedule_cards(const std::vector<SchedulableExpert>& experts,
                        const std::vector<SchedulableNode>& nodes, double gain) {
  std::size_t slots = 0;
  for (const SchedulableNode& each : nodes) slots += each.slots.size();
  return coordinator::schedule(
      experts, nodes, {{std::vector<double>(slots, 1.0), "1 GB", {std::vector(slots, gain)}}});
}

TEST(SchedulerCards, AnExpertGoesWhereItFindsMore) {
  const std::vector<SchedulableNode> nodes = {cards("a", 1), cards("b", 2)};
  for (const double gain : {0.0, 1.9}) {
    const Schedule plan = schedule_cards({automatic(expert(0))}, nodes, gain);
    ASSERT_EQ(plan.grants.size(), 1U);
    EXPECT_EQ(plan.grants[0].slot.node, NodeId("b")) << gain;
    EXPECT_TRUE(plan.grants[0].more.empty()) << "they join at a commit";
  }
  EXPECT_EQ(schedule_cards({automatic(expert(0))}, nodes, 1.2).grants[0].slot.node, NodeId("a"));
}

TEST(SchedulerCards, WhatALeaseHasByMeasureIsTakenLast) {
  SchedulableExpert wide = automatic(held(expert(0), "a", 1));
  wide.more = {1};
  const std::vector<SchedulableNode> roomy = {cards("a", 2), cards("b", 2)};
  Schedule plan = schedule_cards({wide, automatic(expert(1)), held(expert(2), "b", 1)}, roomy, 1.9);
  EXPECT_EQ(plan.grants.at(0).slot, (SlotId{NodeId("b"), 1}));
  EXPECT_TRUE(plan.resizes.empty());
  plan = schedule_cards({wide, automatic(expert(1))}, {cards("a", 2)}, 1.9);
  EXPECT_EQ(plan.grants.at(0).slot, (SlotId{NodeId("a"), 1}));
  ASSERT_EQ(plan.resizes.size(), 1U);
  EXPECT_TRUE(plan.resizes[0].more.empty());
}

TEST(SchedulerCards, TheLastToEndMovesToWhereItFindsMore) {
  const SchedulableExpert first = automatic(held(expert(0), "a", 1)),
                          second = automatic(held(expert(1, 50), "a", 1, 1));
  const std::vector<SchedulableNode> nodes = {cards("a", 2), cards("b", 2)};
  for (const double gain : {0.0, 1.9}) {
    const Schedule plan = schedule_cards({first, second}, nodes, gain);
    EXPECT_EQ(reserved(plan), (std::map<std::uint32_t, std::string>{{0, "b"}})) << gain;
  }
  EXPECT_TRUE(schedule_cards({first, second}, nodes, 1.2).reservations.empty());
}

TEST(SchedulerCards, OfAnyOtherRunNothingIsWider) {
  SchedulableExpert one = held(expert(0), "a", 1);
  one.at_commit = true;
  one.batch = 64;
  const Schedule plan = schedule_cards({one}, {cards("a", 4)}, 1.9);
  EXPECT_TRUE(plan.resizes.empty());
  EXPECT_EQ(plan.spares, 3U);
}

}  // namespace
}  // namespace skerry::coordinator
