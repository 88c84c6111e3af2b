// SPDX-License-Identifier: Apache-2.0
// How leases end in order: turns, drains, evictions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/testing/testing.h"

namespace skerry::coordinator {
namespace {

using testing::expert;
using testing::Harness;
using ::testing::HasSubstr;
using testing::held_by;
using testing::Who;

TEST(Turn, SparesWaitAndTurnsEndAtACommit) {
  Harness harness;
  Who node = harness.join("n1");
  harness.create_run("fashion", 2, 200);
  std::vector<std::uint32_t> order;
  for (int i = 0; i < 15; ++i) {
    const pb::SlotAssignment slot = harness.assignment(node).slots(0);
    order.push_back(slot.expert());
    EXPECT_EQ(harness.commit_round(node).status(), pb::COMMIT_ACCEPTED);
    if (slot.yield_after_commit()) harness.return_lease(node, "turn over");
  }
  EXPECT_EQ(order, (std::vector<std::uint32_t>{0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0}));
  Who spare = harness.join("n2");
  EXPECT_EQ(harness.assignment(spare).slots_size(), 1);  // nobody waits behind any more
  Who third = harness.join("n3");
  EXPECT_EQ(harness.assignment(third).slots_size(), 0);
  const auto why = harness
                       .admin_ask([](pb::AdminRequest& request) {
                         request.mutable_run_why()->set_name("fashion");
                       })
                       .why();
  EXPECT_THAT(why.reasons(why.reasons_size() - 1), HasSubstr("1 slot is spare"));
}

TEST(Turn, ATurnIsAnnouncedBeforeItEnds) {
  Harness harness;
  Who node = harness.join("n1");
  harness.create_run("fashion", 2, 200);
  for (int i = 0; i < 4; ++i) {
    EXPECT_FALSE(harness.assignment(node).slots(0).yield_after_commit());
    harness.commit_round(node);
  }
  EXPECT_TRUE(harness.assignment(node).slots(0).yield_after_commit());
  harness.commit_round(node);
  EXPECT_TRUE(held_by(harness, node, 0));  // what it had trained on the side may follow
  harness.return_lease(node, "turn over");
  EXPECT_THAT(harness.events("lease_returned").at(0).reason(), HasSubstr("its turn of 5 rounds"));
}

TEST(Turn, ATurnOfOneRoundTrainsThatRound) {
  Harness harness;
  Who node = harness.join("n1");
  harness.add_dataset("data", 2);
  pb::RunSpec spec = testing::run_spec("fashion", 100);
  spec.set_turn_rounds(1);
  harness.create_run(spec);
  std::set<std::uint32_t> trained;
  for (int turn = 0; turn < 4; ++turn) {
    harness.reconnect(node);  // the schedule is looked at again
    const pb::SlotAssignment slot = harness.assignment(node).slots(0);
    EXPECT_FALSE(slot.yield_after_commit()) << "in turn " << turn;
    trained.insert(slot.expert());
    harness.commit_round(node);
    EXPECT_TRUE(harness.assignment(node).slots(0).yield_after_commit());
    harness.return_lease(node, "turn over");
  }
  EXPECT_EQ(trained.size(), 2U);
}

TEST(Turn, ADrainEndsAtTheCommitAndIsTold) {
  Harness harness;
  Who node = harness.join("n1");
  harness.create_run("fashion", 1);
  Who spare = harness.join("n2");
  const auto drain = [](pb::AdminRequest& request) {
    request.mutable_node_drain()->set_name("n1");
  };
  const auto state = [&] {
    return harness
        .admin_ask([](pb::AdminRequest& request) { request.mutable_node_show()->set_name("n1"); })
        .nodes()
        .nodes(0)
        .state();
  };
  harness.admin_ask(drain);
  EXPECT_EQ(state(), "draining");
  EXPECT_TRUE(held_by(harness, node));
  EXPECT_TRUE(harness.assignment(node).slots(0).yield_after_commit());
  EXPECT_EQ(harness.commit_round(node).status(), pb::COMMIT_ACCEPTED);
  harness.return_lease(node, "turn over");
  EXPECT_TRUE(held_by(harness, spare));
  EXPECT_EQ(state(), "cordoned");
  EXPECT_EQ(harness.events("drained").size(), 1U);
  harness.admin_ask(drain);
  EXPECT_EQ(state(), "cordoned");
  harness.admin_ask(
      [](pb::AdminRequest& request) { request.mutable_node_uncordon()->set_name("n1"); });
  EXPECT_EQ(state(), "ready");
}

TEST(Turn, ANodeThatDrainsItselfGivesItBack) {
  Harness harness;
  Who node = harness.join("n1");
  harness.create_run("fashion", 1);
  Who spare = harness.join("n2");
  const pb::SlotAssignment held = harness.assignment(node).slots(0);
  harness.heartbeat(node, true);
  EXPECT_TRUE(harness.return_lease(node, held, "drain").has_ack());
  EXPECT_TRUE(held_by(harness, spare));
  EXPECT_TRUE(harness.return_lease(node, held, "drain").has_ack());  // said twice
  EXPECT_TRUE(held_by(harness, spare));
  EXPECT_EQ(harness.events("drained").size(), 1U);
}

// Its commit is on its way when it is told to leave: what it has trained since
// then counts as well.
TEST(Turn, ACommitOnItsWayDoesNotEndTheLease) {
  Harness harness;
  Who node = harness.join("n1");
  harness.create_run("fashion", 1);
  Who spare = harness.join("n2");
  const pb::Commit commit = testing::next_commit(harness.assignment(node).slots(0));
  EXPECT_EQ(harness.send_commit(node, commit).status(), pb::COMMIT_FETCHING);
  harness.heartbeat(node, true);
  EXPECT_TRUE(harness.assignment(node).slots(0).yield_after_commit());
  harness.store(testing::object_of(commit));
  EXPECT_EQ(expert(harness).head_step, 10U);
  EXPECT_TRUE(held_by(harness, node));
  EXPECT_EQ(harness.commit_round(node, 0, 3).status(), pb::COMMIT_ACCEPTED);
  harness.return_lease(node, "drain");
  EXPECT_TRUE(held_by(harness, spare));
  EXPECT_EQ(harness.assignment(spare).slots(0).head_step(), 13U);
}

// It was told to give way, and need not any more when its word arrives: that is
// no sign that it cannot train.
TEST(Turn, ALeaseGivenBackAsAskedIsNoReasonToAvoidTheNode) {
  Harness harness;
  Who node = harness.join("n1");
  harness.create_run("fashion", 2, 200);
  for (int i = 0; i < 4; ++i) harness.commit_round(node);
  EXPECT_TRUE(harness.assignment(node).slots(0).yield_after_commit());
  const pb::SlotAssignment asked = harness.assignment(node).slots(0);
  Who second = harness.join("n2");  // takes the expert that waits
  EXPECT_FALSE(harness.assignment(node).slots(0).yield_after_commit());
  harness.return_lease(node, asked, "turn over");
  EXPECT_TRUE(held_by(harness, node));  // again: nobody else is free
}

TEST(Turn, AnEvictionFencesAtOnce) {
  Harness harness;
  Who node = harness.join("n1");
  harness.create_run("fashion", 1);
  const pb::Commit commit = testing::next_commit(harness.assignment(node).slots(0));
  const Epoch before = expert(harness).epoch;
  harness.admin_ask(
      [](pb::AdminRequest& request) { request.mutable_node_evict()->set_name("n1"); });
  EXPECT_GT(expert(harness).epoch, before);
  EXPECT_FALSE(expert(harness).lease);
  EXPECT_EQ(harness.commit(node, commit).status(), pb::COMMIT_FENCED);
}

}  // namespace
}  // namespace skerry::coordinator
