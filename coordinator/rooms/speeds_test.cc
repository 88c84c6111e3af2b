// SPDX-License-Identifier: Apache-2.0
// Unlike cards: what fits where, how fast it is, and how that is learnt.
#include "coordinator/rooms/speeds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/testing/testing.h"
#include "model/operations.h"

namespace skerry::coordinator {
namespace {

using testing::expert;
using testing::Harness;
using ::testing::HasSubstr;
using testing::held_by;
using testing::Who;

constexpr std::uint64_t kGigabyte = 1'000'000'000;

class Cards : public ::testing::Test {
 protected:
  pb::NodeInfo node(const std::string& name) {
    return harness
        .admin_ask([&](pb::AdminRequest& request) { request.mutable_node_show()->set_name(name); })
        .nodes()
        .nodes(0);
  }
  std::string why() {
    const auto reply = harness.admin_ask(
        [](pb::AdminRequest& request) { request.mutable_run_why()->set_name("a"); });
    std::string all;
    for (const std::string& reason : reply.why().reasons()) all += reason + "\n";
    return all;
  }
  // A round of ten steps that takes so long by the coordinator's clock; the
  // node says that it took `said` seconds.
  void train(Who& who, int seconds, double said, Who* idle = nullptr) {
    const pb::SlotAssignment slot = harness.assignment(who).slots(0);
    harness.heartbeat(who, testing::heartbeat_of(slot, pb::SLOT_TRAINING));
    harness.run_for(std::chrono::seconds(seconds), [&] {
      harness.heartbeat(who);
      if (idle != nullptr) harness.heartbeat(*idle);
    });
    pb::Commit commit = testing::next_commit(slot);
    commit.mutable_metrics()->set_train_seconds(said);
    ASSERT_EQ(harness.commit(who, commit).status(), pb::COMMIT_ACCEPTED);
  }
  // The node has fetched an object of 1,000 bytes.
  void fetched_in(Who& who, int seconds) {
    pb::Heartbeat beat;
    pb::Transfer& transfer = *beat.add_transfers();
    transfer.set_manifest(blake2b("an object").raw());
    transfer.set_bytes(1000);
    transfer.set_millis(1000ULL * static_cast<unsigned>(seconds));
    harness.heartbeat(who, beat);
  }
  double operations() {
    const double of_a_step = 3 * 64 * forward_flops();
    return 10 * of_a_step;
  }
  static double forward_flops() {
    ModelSpec model = model_preset("S/2").value();
    model.image_size = testing::dataset("data", 1).image_size();
    model.channels = testing::dataset("data", 1).channels();
    model.classes = static_cast<std::uint32_t>(testing::dataset("data", 1).classes_size());
    return skerry::forward_flops(model);
  }
  void report_out_of_memory(const Who& who) {
    pb::ControlRequest request;
    auto& said = *request.mutable_engine_report();
    said.set_run(expert(harness).id.run.str());
    said.set_epoch(expert(harness).epoch.value());
    said.set_failure(pb::EngineEvent::FAILURE_OUT_OF_MEMORY);
    said.set_reason("CUDA out of memory");
    said.set_gives_up(true);
    harness.ask(who, request);
  }

  Harness harness;
};

TEST_F(Cards, NothingIsGivenToACardThatIsTooSmall) {
  Who small = harness.join_card("a-small", "NVIDIA Something", kGigabyte);
  harness.create_run("a", 1);
  EXPECT_FALSE(expert(harness).lease);
  EXPECT_THAT(why(), HasSubstr("waits for a larger card: it needs "));
  Who large = harness.join_card("large", "NVIDIA Something", 24 * kGigabyte);
  EXPECT_TRUE(held_by(harness, large));
  const pb::ExpertInfo info = harness.run("a").experts(0);
  EXPECT_GT(info.needs_bytes(), kGigabyte);
  EXPECT_LT(info.needs_bytes(), 24 * kGigabyte);
}

TEST_F(Cards, TheFastestByItsMakersTableIsTaken) {
  Who slow = harness.join_card("a-slow", "NVIDIA L4", 24 * kGigabyte);
  Who fast = harness.join_card("fast", "NVIDIA H200", 141 * kGigabyte);
  harness.create_run("a", 1);
  EXPECT_TRUE(held_by(harness, fast));
  EXPECT_THAT(why(), HasSubstr("by its maker's table"));
  EXPECT_EQ(node("fast").speed_from(), "by its maker's table");
  EXPECT_GT(node("fast").speed(), node("a-slow").speed());
}

TEST_F(Cards, WhatWasMeasuredOutweighsTheTableAndIsDurable) {
  Who fast = harness.join_card("fast", "NVIDIA H200", 141 * kGigabyte);
  harness.create_run("a", 1, 1000);
  train(fast, 20, 20);
  EXPECT_EQ(node("fast").speed_from(), "measured on this node");
  EXPECT_NEAR(node("fast").speed(), operations() / 20, 0.1 * operations() / 20);
  EXPECT_THAT(why(), HasSubstr("measured on this node"));
  harness.restart();
  fast.connection.clear();
  harness.hello(fast);
  EXPECT_EQ(node("fast").speed_from(), "measured on this device");
  Who twin = harness.join_card("twin", "NVIDIA H200", 141 * kGigabyte);
  EXPECT_NEAR(node("twin").speed(), operations() / 20, 0.1 * operations() / 20);
}

TEST_F(Cards, ANodeSeemsAtMostTwiceAsFastAsTheClockSays) {
  Who liar = harness.join_card("liar", "NVIDIA H200", 141 * kGigabyte);
  harness.create_run("a", 1, 1000);
  for (const double said : {1e-9, -1.0, std::numeric_limits<double>::quiet_NaN()}) {
    train(liar, 20, 20);
    train(liar, 20, said);
    EXPECT_LE(node("liar").speed(), 2.2 * operations() / 20) << said;
  }
}

TEST_F(Cards, ACardThatRanOutOfMemoryGetsThatRunNoMore) {
  Who first = harness.join_card("a", "NVIDIA Something", 24 * kGigabyte);
  harness.create_run("a", 1);
  ASSERT_TRUE(held_by(harness, first));
  report_out_of_memory(first);
  const auto beat_all = [&](std::vector<Who*> all) {
    harness.run_for(harness.config.avoid + std::chrono::seconds(1), [&] {
      for (Who* each : all) harness.heartbeat(*each);
    });
  };
  beat_all({&first});
  EXPECT_FALSE(expert(harness).lease) << "also after the time for which it is avoided";
  EXPECT_THAT(why(), HasSubstr("waits for a larger card"));
  // One node speaks for itself, two for every device of the name.
  Who second = harness.join_card("b", "NVIDIA Something", 24 * kGigabyte);
  ASSERT_TRUE(held_by(harness, second));
  report_out_of_memory(second);
  Who other = harness.join_card("d", "NVIDIA Else", 24 * kGigabyte);
  ASSERT_TRUE(held_by(harness, other));
  Who third = harness.join_card("c", "NVIDIA Something", 24 * kGigabyte);
  harness.heartbeat(other, true);
  harness.return_lease(other, "drain");
  EXPECT_FALSE(expert(harness).lease);
  harness.restart();
  for (Who* each : {&other, &first, &second, &third}) {
    each->connection.clear();
    harness.hello(*each);
  }
  EXPECT_TRUE(held_by(harness, other)) << "a restart forgets nothing";
}

TEST_F(Cards, AnExpertMovesToAFasterCardAtItsCommit) {
  Who slow = harness.join_card("slow", "NVIDIA L4", 24 * kGigabyte);
  harness.create_run("a", 1, 100'000);
  ASSERT_TRUE(held_by(harness, slow));
  Who fast = harness.join_card("a-fast", "NVIDIA H200", 141 * kGigabyte);
  EXPECT_TRUE(held_by(harness, slow)) << "a lease never moves at once";
  train(slow, 20, 20, &fast);
  EXPECT_THAT(why(), HasSubstr("moves to a-fast slot 0"));
  ASSERT_TRUE(harness.assignment(slow).slots(0).yield_after_commit());
  train(slow, 20, 20, &fast);
  harness.return_lease(slow, "turn over");
  EXPECT_TRUE(held_by(harness, fast));
  ASSERT_EQ(harness.events("moved").size(), 1U);
  EXPECT_THAT(harness.events("moved").at(0).reason(), HasSubstr("from slow: it moves to a-fast"));
  train(fast, 20, 20, &slow);
  EXPECT_FALSE(harness.assignment(fast).slots(0).yield_after_commit()) << "it stays";
}

TEST_F(Cards, AMoveCostsTheTimeToFetchWhatTheNodeLacks) {
  Who slow = harness.join_card("slow", "NVIDIA L4", 24 * kGigabyte);
  harness.create_run("a", 1, 100'000);
  Who fast = harness.join_card("a-fast", "NVIDIA H200", 141 * kGigabyte);
  fetched_in(fast, 100'000);  // the rest takes 2 s a step: 200,000 s
  train(slow, 20, 20, &fast);
  EXPECT_FALSE(harness.assignment(slow).slots(0).yield_after_commit());
  EXPECT_EQ(harness.replicate(fast).replicas_size(), 1);
  harness.reconnect(fast);
  EXPECT_THAT(why(), HasSubstr("moves to a-fast slot 0"));
}

TEST_F(Cards, TheTimeToFetchCountsOnceInWhatAMoveCosts) {
  Who slow = harness.join_card("slow", "NVIDIA L4", 24 * kGigabyte);
  harness.create_run("a", 1, 40);
  Who fast = harness.join_card("a-fast", "NVIDIA H200", 141 * kGigabyte);
  fetched_in(slow, 60);  // its shard
  harness.run_for(std::chrono::seconds(70), [&] {
    harness.heartbeat(slow);
    harness.heartbeat(fast);
  });
  train(slow, 20, 20, &fast);  // 60 s are left
  EXPECT_THAT(why(), HasSubstr("moves to a-fast slot 0")) << "its engine started in 10 s";
}

TEST_F(Cards, ASmallObjectSaysLittleOfARate) {
  Who slow = harness.join_card("slow", "NVIDIA L4", 24 * kGigabyte);
  harness.create_run("a", 1, 100'000);
  Who fast = harness.join_card("a-fast", "NVIDIA H200", 141 * kGigabyte);
  pb::Heartbeat beat;
  beat.add_transfers()->set_manifest(blake2b("large").raw());
  beat.mutable_transfers(0)->set_bytes(1'000'000);
  beat.mutable_transfers(0)->set_millis(10);
  harness.heartbeat(fast, beat);
  fetched_in(fast, 100'000'000);
  train(slow, 20, 20, &fast);
  EXPECT_THAT(why(), HasSubstr("moves to a-fast slot 0"));
}

TEST_F(Cards, BoundToTheSameCardAnExpertWaitsForOne) {
  Who first = harness.join_card("a", "engine 1", 24 * kGigabyte);  // as its fingerprint says
  harness.add_dataset("data", 1);
  pb::RunSpec spec = testing::run_spec("a", 1000);
  spec.set_cards("same");
  harness.create_run(spec);
  ASSERT_TRUE(held_by(harness, first));
  train(first, 20, 20);
  harness.join_card("b", "NVIDIA H200", 141 * kGigabyte);
  harness.heartbeat(first, true);
  harness.return_lease(first, "drain");
  EXPECT_FALSE(expert(harness).lease);
  EXPECT_THAT(why(), HasSubstr("and the card of its last checkpoint"));
}

TEST_F(Cards, ANodeIsToldATurnOfAtLeastOneRound) {
  Who who = harness.join("n1");
  harness.add_dataset("data", 1);
  pb::RunSpec spec = testing::run_spec("a", 1000);
  spec.set_turn_rounds(0);
  spec.set_turn_seconds(300);
  harness.create_run(spec);
  EXPECT_EQ(harness.assignment(who).slots(0).spec().turn_rounds(), 1U);
}

}  // namespace
}  // namespace skerry::coordinator
