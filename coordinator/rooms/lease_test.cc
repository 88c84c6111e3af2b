// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "coordinator/testing/testing.h"

namespace skerry::coordinator {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::expert;
using testing::Harness;
using ::testing::HasSubstr;
using testing::held_by;
using testing::Who;

TEST(Lease, AGrantLeavesOnlyWhenItsEpochIsDurable) {
  Harness harness;
  harness.create_run("fashion", 1);
  Who node = testing::make_who("n1");
  harness.enrol(node, harness.first.token);
  node.incarnation = 1;
  harness.hello(node);
  const pb::Assignment assignment = harness.assignment(node);
  ASSERT_EQ(assignment.slots_size(), 1);
  EXPECT_EQ(assignment.slots(0).epoch(), Epoch(1, 1).value());
  EXPECT_EQ(assignment.slots(0).shards_size(), 1);
  EXPECT_EQ(assignment.slots(0).model().width(), 384U);

  // A second expert appears while the disk stalls: heartbeats go on, and tell
  // nothing of it.
  Who other = harness.join("n2");
  harness.heartbeat(other);
  const std::uint64_t before = harness.heartbeat(other).assignment_version();
  pb::ControlRequest create;
  *create.mutable_admin()->mutable_run_create()->mutable_spec() = testing::run_spec("second");
  harness.disk_stalls = true;
  EXPECT_TRUE(harness.send(harness.admin, create).empty());
  const pb::HeartbeatReply beat = harness.heartbeat(other);
  EXPECT_EQ(beat.assignment_version(), before);
  EXPECT_EQ(beat.renewed_size(), 0);
  pb::ControlRequest ask;
  ask.mutable_get_assignment();
  EXPECT_TRUE(harness.send(other, ask).empty()) << "an assignment waits for its epoch";
  harness.disk_stalls = false;
  harness.persist();
  ASSERT_EQ(harness.inbox(other).size(), 1U);
  EXPECT_EQ(harness.inbox(other)[0].assignment().slots_size(), 1);
  EXPECT_GT(harness.heartbeat(other).assignment_version(), before);
  EXPECT_EQ(harness.heartbeat(other).renewed_size(), 1);
}

TEST(Lease, HeartbeatsAreAnsweredWhileTheDiskStalls) {
  Harness harness;
  Who node = harness.join("n1");
  harness.create_run("fashion", 1);
  harness.disk_stalls = true;
  harness.run_for(seconds(60), [&] {
    const pb::HeartbeatReply beat = harness.heartbeat(node);  // the harness insists on an answer
    EXPECT_EQ(beat.renewed_size(), 1);
  });
  EXPECT_TRUE(held_by(harness, node));
}

TEST(Lease, OldHeartbeatsAreDropped) {
  Harness harness;
  Who node = harness.join("n1");
  harness.heartbeat(node);
  pb::ControlRequest late;
  late.mutable_heartbeat()->set_incarnation(node.incarnation);
  late.mutable_heartbeat()->set_sequence(node.sequence);
  EXPECT_TRUE(harness.send(node, late).empty());
}

TEST(Lease, SilenceEndsALeaseAfterItsTimeAndNotBefore) {
  Harness harness;
  Who silent = harness.join("n1");
  harness.create_run("fashion", 1);
  Who spare = harness.join("n2");
  const Epoch before = expert(harness).epoch;
  const auto beat = [&] { harness.heartbeat(spare); };
  harness.run_for(milliseconds(7900), beat);
  EXPECT_TRUE(held_by(harness, silent));
  harness.run_for(milliseconds(300), beat);
  EXPECT_TRUE(held_by(harness, spare));
  EXPECT_GT(expert(harness).epoch, before);
  const auto lost = harness.events("lease_lost");
  ASSERT_EQ(lost.size(), 1U);
  EXPECT_THAT(lost[0].reason(), HasSubstr("n1 has been silent for"));
  EXPECT_THAT(lost[0].reason(), HasSubstr("goes to n2"));
  EXPECT_EQ(harness.events("node_lost").size(), 1U);
}

TEST(Lease, WithoutAFreeNodeTheEventSaysWhatItWaitsForAndTheHolderMayComeBack) {
  Harness harness;
  Who node = harness.join("n1");
  harness.create_run("fashion", 1);
  const Epoch before = expert(harness).epoch;
  harness.run_for(seconds(9));
  EXPECT_THAT(harness.events("lease_lost").at(0).reason(), HasSubstr("waits for a node"));
  EXPECT_EQ(harness.run("fashion").state(), "waiting");
  harness.heartbeat(node);
  EXPECT_TRUE(held_by(harness, node));
  EXPECT_EQ(expert(harness).epoch, before);
  EXPECT_EQ(harness.commit_round(node).status(), pb::COMMIT_ACCEPTED);
}

TEST(Lease, AHolderThatWasOvertakenInItsSilenceIsToldAsFencedOnce) {
  Harness harness;
  Who node = harness.join("n1");
  harness.create_run("fashion", 1);
  const pb::SlotAssignment slot = harness.assignment(node).slots(0);
  Who spare = harness.join("n2");
  harness.run_for(seconds(9), [&] { harness.heartbeat(spare); });
  ASSERT_TRUE(held_by(harness, spare));
  for (int i = 0; i < 2; ++i) {
    pb::ControlRequest beat;
    auto& said = *beat.mutable_heartbeat();
    said.set_incarnation(node.incarnation);
    said.set_sequence(++node.sequence);
    auto& status = *said.add_slots();
    status.set_run(slot.run());
    status.set_epoch(slot.epoch());
    status.set_step(17);
    EXPECT_EQ(harness.ask(node, beat).heartbeat().renewed_size(), 0);
  }
  ASSERT_EQ(harness.events("fenced").size(), 1U);
  EXPECT_THAT(harness.events("fenced")[0].reason(), HasSubstr("still trained at step 17"));
  EXPECT_EQ(harness.commit(node, testing::next_commit(slot)).status(), pb::COMMIT_FENCED);
  EXPECT_EQ(harness.events("fenced").size(), 1U);
}

TEST(Lease, AClosedConnectionEndsItWithinAboutASecond) {
  Harness harness;
  Who node = harness.join("n1");
  harness.create_run("fashion", 1);
  Who spare = harness.join("n2");
  harness.step(Closed{node.connection});
  harness.run_for(milliseconds(990));
  EXPECT_TRUE(held_by(harness, node));
  harness.run_for(milliseconds(20));
  EXPECT_TRUE(held_by(harness, spare));
}

pb::Heartbeat notice(std::uint64_t left_ms) {
  pb::Heartbeat said;
  said.set_leaves_in_ms(left_ms);
  said.set_notice("AWS: terminate");
  return said;
}

pb::NodeInfo shown(Harness& harness, const std::string& name) {
  return harness
      .admin_ask([&](pb::AdminRequest& request) { request.mutable_node_show()->set_name(name); })
      .nodes()
      .nodes(0);
}

TEST(Notice, ANodeWithOneDrainsFromTheFirstWordOn) {
  Harness harness;
  Who node = harness.join("n1");
  harness.heartbeat(node, notice(30'000));  // without the field that minor version 1 knows
  EXPECT_EQ(shown(harness, "n1").state(), "draining");
  EXPECT_EQ(shown(harness, "n1").leaves_in_seconds(), 30U);
  harness.create_run("fashion", 1);
  EXPECT_FALSE(held_by(harness, node));
  harness.run_for(seconds(2));
  EXPECT_EQ(shown(harness, "n1").leaves_in_seconds(), 28U);
  harness.heartbeat(node);  // it lived on
  EXPECT_FALSE(shown(harness, "n1").has_leaves_in_seconds());
  EXPECT_TRUE(held_by(harness, node));
}

TEST(Notice, ItsWordIsOneEvent) {
  Harness harness;
  Who node = harness.join("n1");
  for (const std::uint64_t left : {30'000, 29'000, 28'000}) harness.heartbeat(node, notice(left));
  ASSERT_EQ(harness.events("notice").size(), 1U);
  EXPECT_EQ(harness.events("notice")[0].node(), "n1");
  EXPECT_EQ(harness.events("notice")[0].reason(),
            "AWS: terminate: 30 s left: it gives its leases back");
  harness.heartbeat(node);
  EXPECT_EQ(harness.events("notice").size(), 2U);
}

TEST(Notice, ANewProcessHasNone) {
  Harness harness;
  Who node = harness.join("n1");
  harness.heartbeat(node, notice(30'000));
  ++node.incarnation;
  node.sequence = 0;
  harness.reconnect(node);
  EXPECT_FALSE(shown(harness, "n1").has_leaves_in_seconds());
  EXPECT_EQ(shown(harness, "n1").state(), "ready");
}

TEST(Notice, AdviceKeepsTheLeaseAndStopsNewOnes) {
  Harness harness;
  Who node = harness.join("n1", 2);
  harness.create_run("fashion", 1);
  ASSERT_TRUE(held_by(harness, node));
  pb::Heartbeat advised;
  advised.set_no_new_work(true);
  advised.set_notice("AWS: rebalance recommendation");
  harness.heartbeat(node, advised);
  EXPECT_EQ(shown(harness, "n1").state(), "cordoned");
  EXPECT_FALSE(shown(harness, "n1").has_leaves_in_seconds());
  EXPECT_FALSE(harness.assignment(node).slots(0).yield_after_commit());
  harness.create_run("second", 1);
  EXPECT_EQ(harness.assignment(node).slots_size(), 1);
  harness.heartbeat(node);
  EXPECT_EQ(harness.assignment(node).slots_size(), 2);
}

// Its process may greet before it beats.
TEST(Notice, ASilenceDoesNotEndTheAdvice) {
  Harness harness;
  Who node = harness.join("n1");
  pb::Heartbeat advised;
  advised.set_no_new_work(true);
  advised.set_notice("AWS: rebalance recommendation");
  harness.heartbeat(node, advised);
  harness.run_for(seconds(300));
  ASSERT_EQ(shown(harness, "n1").state(), "lost");
  harness.create_run("fashion", 1);
  harness.reconnect(node);
  EXPECT_EQ(harness.assignment(node).slots_size(), 0);
}

TEST(Lease, ANodeThatDrainedAndLeftIsNotLost) {
  Harness harness;
  Who node = harness.join("n1");
  harness.create_run("fashion", 1);
  const auto state = [&] {
    return harness
        .admin_ask([](pb::AdminRequest& request) { request.mutable_node_show()->set_name("n1"); })
        .nodes()
        .nodes(0)
        .state();
  };
  harness.heartbeat(node, true);
  harness.return_lease(node, "drain");
  EXPECT_EQ(state(), "draining");
  harness.step(Closed{node.connection});
  EXPECT_EQ(state(), "left");
  harness.run_for(seconds(20));
  harness.restart();
  harness.run_for(seconds(20));
  EXPECT_EQ(state(), "left");
  EXPECT_TRUE(harness.events("node_lost").empty());
  EXPECT_EQ(harness.events("node_left").size(), 1U);

  ++node.incarnation;
  node.sequence = 0;
  harness.reconnect(node);
  EXPECT_EQ(state(), "training");
  EXPECT_EQ(harness.events("node_joined").size(), 2U);
}

TEST(Lease, ANodeThatLeavesWithALeaseIsLost) {
  Harness harness;
  Who node = harness.join("n1");
  harness.create_run("fashion", 1);
  harness.heartbeat(node, true);
  harness.step(Closed{node.connection});
  harness.run_for(seconds(2));
  EXPECT_EQ(harness.events("node_lost").size(), 1U);
  EXPECT_EQ(harness.events("lease_lost").size(), 1U);
  EXPECT_TRUE(harness.events("node_left").empty());
}

TEST(Lease, ADrainedNodeWhoseEndNobodySawHasLeft) {
  Harness harness;
  Who node = harness.join("n1");
  harness.heartbeat(node, true);
  harness.run_for(seconds(10));
  EXPECT_EQ(harness.events("node_left").size(), 1U);
  EXPECT_TRUE(harness.events("node_lost").empty());
}

TEST(Lease, AReconnectWithinASecondKeepsIt) {
  Harness harness;
  Who node = harness.join("n1");
  harness.create_run("fashion", 1);
  Who spare = harness.join("n2");
  harness.step(Closed{node.connection});
  harness.run_for(milliseconds(900));
  harness.reconnect(node);
  harness.run_for(seconds(3), [&] {
    harness.heartbeat(node);
    harness.heartbeat(spare);
  });
  EXPECT_TRUE(held_by(harness, node));
  EXPECT_TRUE(harness.events("lease_lost").empty());
}

TEST(Lease, ALateCloseOfAnOldConnectionIsNothing) {
  Harness harness;
  Who node = harness.join("n1");
  harness.create_run("fashion", 1);
  const std::string old_connection = node.connection;
  harness.reconnect(node);
  harness.step(Closed{old_connection});
  harness.run_for(seconds(3), [&] { harness.heartbeat(node); });
  EXPECT_TRUE(held_by(harness, node));
}

TEST(Lease, EarlyEndsAreBounded) {
  Harness harness;
  std::vector<Who> nodes;
  for (int i = 0; i < 6; ++i) nodes.push_back(harness.join("n" + std::to_string(i)));
  harness.create_run("fashion", 6);
  for (const Who& node : nodes) harness.step(Closed{node.connection});
  harness.run_for(seconds(2));
  EXPECT_EQ(harness.events("node_lost").size(), 3U);  // the network rather than six deaths
  harness.run_for(seconds(7));
  EXPECT_EQ(harness.events("node_lost").size(), 6U);  // but silence is silence
}

TEST(Lease, EarlyEndsAreAllowedAgainAfterTheirWindow) {
  Harness harness;
  std::vector<Who> nodes;
  for (int i = 0; i < 4; ++i) nodes.push_back(harness.join("n" + std::to_string(i)));
  const auto lost = [&] { return harness.events("node_lost").size(); };
  for (int i = 0; i < 3; ++i) harness.step(Closed{nodes[i].connection});
  harness.run_for(milliseconds(1010));
  ASSERT_EQ(lost(), 3U);
  const auto beat = [&] { harness.heartbeat(nodes[3]); };
  harness.run_for(milliseconds(4000), beat);
  harness.step(Closed{nodes[3].connection});
  harness.run_for(milliseconds(1010));  // silent for about two seconds only
  EXPECT_EQ(lost(), 4U);
}

TEST(Lease, EarlyEndsGrowWithTheFleet) {
  Harness harness;
  std::vector<Who> nodes;
  for (int i = 0; i < 100; ++i) nodes.push_back(harness.join("n" + std::to_string(i)));
  for (int i = 0; i < 8; ++i) harness.step(Closed{nodes[i].connection});
  harness.run_for(milliseconds(1010));
  EXPECT_EQ(harness.events("node_lost").size(), 5U);  // one in twenty
}

TEST(Lease, NoEarlyEndWhileTheLoopLags) {
  Harness harness;
  Who node = harness.join("n1");
  harness.create_run("fashion", 1);
  harness.step(Closed{node.connection});
  harness.step(LoopLag{milliseconds(600)});
  harness.run_for(seconds(3));
  EXPECT_TRUE(held_by(harness, node));
}

TEST(Lease, NoEarlyEndSoonAfterTheLoopLagged) {
  Harness harness;
  Who node = harness.join("n1");
  harness.create_run("fashion", 1);
  harness.step(LoopLag{milliseconds(600)});
  harness.step(Closed{node.connection});
  harness.run_for(seconds(3));
  EXPECT_TRUE(held_by(harness, node));
}

TEST(Lease, NoEarlyEndInTheRecoveryWindow) {
  Harness harness;
  Who node = harness.join("n1");
  harness.create_run("fashion", 1);
  harness.restart();
  harness.reconnect(node);
  harness.step(Closed{node.connection});
  harness.run_for(seconds(3));
  EXPECT_TRUE(held_by(harness, node));
}

TEST(Lease, TheRecoveryWindowGrowsWithTheFleet) {
  Harness harness;
  harness.config.dials_per_second = 0.1;  // so that two nodes count as many: 2 · 2 / 0.1 s
  Who node = harness.join("n1");
  Who spare = harness.join("n2");
  harness.create_run("fashion", 1);
  harness.restart();
  harness.reconnect(spare);
  const auto beat = [&] { harness.heartbeat(spare); };
  harness.run_for(seconds(39), beat);
  EXPECT_TRUE(held_by(harness, node));
  harness.run_for(seconds(2), beat);
  EXPECT_TRUE(held_by(harness, spare));
}

// A fleet whose coordinator starts again. Its nodes come back one by one; who
// holds the only expert does not.
struct ComingBack {
  ComingBack(Harness& on, int nodes) : harness(on) {
    for (int i = 0; i < nodes; ++i) away.push_back(harness.join(text("n", i)));
    harness.create_run("fashion", 1);
    // Not std::ranges::partition: clang 14 does not compile libstdc++'s.
    std::partition(away.begin(), away.end(),
                   [&](const Who& node) { return !held_by(harness, node); });
    holder = away.back();
    away.pop_back();
    harness.restart();
  }
  void run_for(Duration duration) {
    harness.run_for(duration, [&] {
      for (Who& node : back) harness.heartbeat(node);
    });
  }
  void one_each_3_seconds(int nodes) {
    for (int i = 0; i < nodes; ++i) {
      run_for(seconds(3));
      back.push_back(away.back());
      away.pop_back();
      harness.reconnect(back.back());
    }
  }

  Harness& harness;
  std::vector<Who> away, back;
  Who holder;
};

TEST(Lease, TheRecoveryWindowStaysOpenWhileNodesComeBack) {
  Harness harness;
  ComingBack fleet(harness, 6);
  fleet.one_each_3_seconds(5);  // the last after 15 s
  fleet.run_for(milliseconds(3900));
  EXPECT_TRUE(held_by(harness, fleet.holder));
  // Who came back once is waited for no more, however often it dials.
  harness.reconnect(fleet.back.front());
  fleet.run_for(milliseconds(400));
  EXPECT_FALSE(held_by(harness, fleet.holder));
}

TEST(Lease, TheRecoveryWindowEndsHoweverManyComeBack) {
  Harness harness;
  harness.config.longest_recovery = 2;  // 16 s
  ComingBack fleet(harness, 9);
  fleet.one_each_3_seconds(5);
  EXPECT_TRUE(held_by(harness, fleet.holder));
  fleet.run_for(milliseconds(1400));
  EXPECT_FALSE(held_by(harness, fleet.holder));
}

TEST(Lease, ALaggingLoopExpiresNobody) {
  Harness harness;
  Who node = harness.join("n1");
  harness.create_run("fashion", 1);
  harness.now.boot +=
      seconds(30);  // the coordinator was stopped; what the node said is still queued
  harness.step(LoopLag{seconds(30)});
  harness.step(Tick{});
  harness.heartbeat(node);
  harness.step(Tick{});
  EXPECT_TRUE(held_by(harness, node));
  EXPECT_TRUE(harness.events("lease_lost").empty());
}

TEST(Lease, ARestartCostsAHealthyFleetNothing) {
  Harness harness;
  std::vector<Who> nodes = {harness.join("n1"), harness.join("n2")};
  harness.create_run("fashion", 2);
  const auto before = harness.core().experts();
  harness.now.boot += seconds(18);
  harness.restart();
  harness.run_for(seconds(5));
  for (Who& node : nodes) harness.reconnect(node);
  harness.run_for(seconds(10), [&] {
    for (Who& node : nodes) EXPECT_EQ(harness.heartbeat(node).renewed_size(), 1);
  });
  const auto after = harness.core().experts();
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(after[i].epoch, before[i].epoch);
    ASSERT_TRUE(after[i].lease);
    EXPECT_EQ(after[i].lease->node, before[i].lease->node);
  }
  EXPECT_TRUE(harness.events("lease_lost").empty());
  EXPECT_EQ(harness.events("coordinator_started").size(), 2U);
}

TEST(Lease, InTheRecoveryWindowNothingExpiresAfterItDoes) {
  Harness harness;
  Who gone = harness.join("n1");
  harness.create_run("fashion", 1);
  harness.restart();
  Who spare = harness.join("n2");
  harness.step(Closed{spare.connection});
  harness.reconnect(spare);
  const auto beat = [&] { harness.heartbeat(spare); };
  harness.run_for(milliseconds(7900), beat);
  EXPECT_TRUE(held_by(harness, gone));
  harness.run_for(milliseconds(400), beat);
  EXPECT_TRUE(held_by(harness, spare));
}

TEST(Lease, ADaemonThatStartsAgainLosesItsOldLeases) {
  Harness harness;
  Who node = harness.join("n1");
  harness.create_run("fashion", 1);
  const Epoch before = expert(harness).epoch;
  ++node.incarnation;
  harness.reconnect(node);
  EXPECT_TRUE(held_by(harness, node));
  EXPECT_GT(expert(harness).epoch, before);
  EXPECT_THAT(harness.events("lease_lost").at(0).reason(), HasSubstr("n1 was started again"));
}

}  // namespace
}  // namespace skerry::coordinator
