// How leases end in order: turns, drains, evictions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/testing.h"

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
    order.push_back(harness.assignment(node).slots(0).expert());
    EXPECT_EQ(harness.commit_round(node).status(), pb::COMMIT_ACCEPTED);
  }
  EXPECT_EQ(order, (std::vector<std::uint32_t>{0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0}));
  Who spare = harness.join("n2");
  EXPECT_EQ(harness.assignment(spare).slots_size(), 1);  // nobody waits behind any more
  Who third = harness.join("n3");
  EXPECT_EQ(harness.assignment(third).slots_size(), 0);
  const auto why =
      harness.admin_ask([](pb::AdminRequest& request) { request.mutable_run_why()->set_name("fashion"); })
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
  EXPECT_THAT(harness.events("lease_returned").at(0).reason(), HasSubstr("its turn of 5 rounds"));
}

TEST(Turn, ADrainEndsAtTheCommitAndIsTold) {
  Harness harness;
  Who node = harness.join("n1");
  harness.create_run("fashion", 1);
  Who spare = harness.join("n2");
  const auto drain = [](pb::AdminRequest& request) { request.mutable_node_drain()->set_name("n1"); };
  const auto state = [&] {
    return harness.admin_ask([](pb::AdminRequest& request) { request.mutable_node_show()->set_name("n1"); })
        .nodes()
        .nodes(0)
        .state();
  };
  harness.admin_ask(drain);
  EXPECT_EQ(state(), "draining");
  EXPECT_TRUE(held_by(harness, node));
  EXPECT_TRUE(harness.assignment(node).slots(0).yield_after_commit());
  EXPECT_EQ(harness.commit_round(node).status(), pb::COMMIT_ACCEPTED);
  EXPECT_TRUE(held_by(harness, spare));
  EXPECT_EQ(state(), "cordoned");
  EXPECT_EQ(harness.events("drained").size(), 1U);
  harness.admin_ask(drain);
  EXPECT_EQ(state(), "cordoned");
  harness.admin_ask([](pb::AdminRequest& request) { request.mutable_node_uncordon()->set_name("n1"); });
  EXPECT_EQ(state(), "ready");
}

TEST(Turn, ANodeThatDrainsItselfGivesItBack) {
  Harness harness;
  Who node = harness.join("n1");
  harness.create_run("fashion", 1);
  Who spare = harness.join("n2");
  const std::uint64_t epoch = harness.assignment(node).slots(0).epoch();
  harness.heartbeat(node, true);
  pb::ControlRequest back;
  back.mutable_return_lease()->set_run(harness.assignment(node).slots(0).run());
  back.mutable_return_lease()->set_epoch(epoch);
  back.mutable_return_lease()->set_reason("draining");
  EXPECT_TRUE(harness.ask(node, back).has_ack());
  EXPECT_TRUE(held_by(harness, spare));
  EXPECT_TRUE(harness.ask(node, back).has_ack());  // said twice
  EXPECT_TRUE(held_by(harness, spare));
  EXPECT_EQ(harness.events("drained").size(), 1U);
}

TEST(Turn, AnEvictionFencesAtOnce) {
  Harness harness;
  Who node = harness.join("n1");
  harness.create_run("fashion", 1);
  const pb::Commit commit = testing::next_commit(harness.assignment(node).slots(0));
  const Epoch before = expert(harness).epoch;
  harness.admin_ask([](pb::AdminRequest& request) { request.mutable_node_evict()->set_name("n1"); });
  EXPECT_GT(expert(harness).epoch, before);
  EXPECT_FALSE(expert(harness).lease);
  EXPECT_EQ(harness.commit(node, commit).status(), pb::COMMIT_FENCED);
}

}  // namespace
}  // namespace skerry::coordinator
