// SPDX-License-Identifier: Apache-2.0
// Leases of several slots: granted by number, widened and narrowed by measure.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/core/keys.h"
#include "coordinator/state.pb.h"
#include "coordinator/testing/testing.h"

namespace skerry::coordinator {
namespace {

using ::testing::ElementsAre;
using testing::Harness;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Who;

class Width : public ::testing::Test {
 protected:
  // Of one expert that never ends.
  void create_run(std::uint32_t cards, const std::string& name = "a", std::uint32_t batch = 64,
                  double dollars_per_hour = 0) {
    if (!has_dataset_) harness.add_dataset("data", 1);
    has_dataset_ = true;
    pb::RunSpec spec = testing::run_spec(name, 1'000'000);
    spec.set_cards_per_expert(cards);
    spec.mutable_train()->set_batch_size(batch);
    spec.set_budget_dollars_per_hour(dollars_per_hour);
    harness.create_run(spec);
  }
  // A round of the node's first lease: so many seconds by the coordinator's
  // clock, trained on all cards of the lease.
  void train(Who& who, int seconds = 10) {
    const pb::SlotAssignment slot = harness.assignment(who).slots(0);
    const pb::Heartbeat beat = testing::heartbeat_of(slot, pb::SLOT_TRAINING);
    harness.heartbeat(who, beat);
    harness.run_for(std::chrono::seconds(seconds), [&] { harness.heartbeat(who, beat); });
    pb::Commit commit = testing::next_commit(slot);
    commit.mutable_metrics()->set_train_seconds(seconds);
    commit.mutable_metrics()->set_cards(1 + static_cast<std::uint32_t>(slot.more_slots_size()));
    ASSERT_EQ(harness.commit(who, commit).status(), pb::COMMIT_ACCEPTED);
  }
  // The lease of a run's expert.
  std::optional<LeaseView> lease(const std::string& name = "a") {
    const std::string run = harness.run(name).id();
    for (const ExpertView& view : harness.core().experts()) {
      if (view.id.run.str() == run) return view.lease;
    }
    return std::nullopt;
  }
  std::vector<std::uint32_t> more() {
    return lease() ? lease()->more : std::vector<std::uint32_t>{99};
  }
  Epoch epoch() { return Epoch(harness.run("a").experts(0).epoch()); }
  void reconnect(Who& who, std::uint32_t slots) {
    who.connection.clear();
    harness.hello(who, slots);
  }
  // A Hello of so old a daemon.
  void hello_of_minor(Who& who, std::uint32_t minor, std::uint32_t slots) {
    who.connection = who.name + "#old";
    pb::ControlRequest request;
    auto& hello = *request.mutable_hello();
    hello.mutable_version()->set_major(protocol::kVersionMajor);
    hello.mutable_version()->set_minor(minor);
    hello.set_incarnation(who.incarnation);
    for (std::uint32_t slot = 0; slot < slots; ++slot) {
      hello.add_slots()->set_index(slot);
      hello.mutable_slots(static_cast<int>(slot))->set_device(who.device);
    }
    ASSERT_FALSE(harness.ask(who, request).has_error());
  }
  std::string last_resize() {
    const auto events = harness.events("lease_resized");
    return events.empty() ? "" : events.back().reason();
  }

  Harness harness;
  bool has_dataset_ = false;
};

TEST_F(Width, OneCardIsWhatARunGets) {
  Who ada = harness.join("ada", 4);
  harness.create_run("a", 1, 1'000'000);
  train(ada);
  train(ada);
  EXPECT_THAT(more(), IsEmpty());
  EXPECT_EQ(harness.run("a").experts(0).cards(), 1U);
}

TEST_F(Width, ALeaseWidensAtACommitAndKeepsItsEpoch) {
  Who ada = harness.join("ada", 2);
  create_run(0);
  const Epoch before = epoch();
  harness.join("bob");  // something else is scheduled
  EXPECT_THAT(more(), IsEmpty()) << "nothing is committed yet";
  train(ada);
  EXPECT_THAT(more(), ElementsAre(1));
  EXPECT_EQ(epoch(), before);
  const pb::SlotAssignment slot = harness.assignment(ada).slots(0);
  EXPECT_THAT(slot.more_slots(), ElementsAre(1));
  EXPECT_EQ(slot.epoch(), before.value());
  EXPECT_EQ(harness.run("a").experts(0).cards(), 2U);
  EXPECT_THAT(last_resize(), HasSubstr("goes on with 2 cards: no expert waits"));
  train(ada);
  EXPECT_EQ(harness.run("a").experts(0).step(), 20U) << "its commits are accepted as before";
}

// Else a table's word would count, and a turn's work be taken for more than all
// that is left.
TEST_F(Width, OneCardsSpeedFollowsFromThatOfSeveral) {
  Who ada = harness.join("ada", 2);
  create_run(2);
  train(ada);
  train(ada);
  const auto reply = harness.admin_ask(
      [](pb::AdminRequest& request) { request.mutable_run_why()->set_name("a"); });
  std::string why;
  for (const std::string& reason : reply.why().reasons()) why += reason + "\n";
  EXPECT_THAT(why, HasSubstr("measured on this device, of one card"));
}

TEST_F(Width, AWaitingExpertGetsASlotBackAtOnce) {
  Who ada = harness.join("ada", 2);
  create_run(0);
  train(ada);
  ASSERT_THAT(more(), ElementsAre(1));
  const Epoch before = epoch();
  create_run(0, "b");
  EXPECT_THAT(more(), IsEmpty());
  EXPECT_EQ(epoch(), before) << "its holder loses nothing";
  ASSERT_TRUE(lease("b"));
  EXPECT_EQ(lease("b")->slot, 1U);
  EXPECT_THAT(last_resize(),
              HasSubstr("goes on with 1 card: ada slot 1 is wanted by expert 0 of b"));
  train(ada);
  EXPECT_THAT(more(), IsEmpty()) << "nothing is free";
}

TEST_F(Width, ItDoublesAsLongAsThatGains) {
  Who ada = harness.join("ada", 5);
  create_run(0);
  train(ada, 40);
  EXPECT_THAT(more(), ElementsAre(1));
  train(ada, 39);  // has the start of the engine in it, and measures nothing
  EXPECT_THAT(more(), ElementsAre(1)) << "two are not measured yet";
  train(ada, 21);
  EXPECT_THAT(more(), ElementsAre(1, 2, 3)) << "four were never tried";
  for (int i = 0; i < 5; ++i) train(ada, 12);
  EXPECT_THAT(more(), ElementsAre(1, 2, 3))
      << "five do not share the batch, and eight are not there";
}

TEST_F(Width, ABatchIsSharedEvenly) {
  Who ada = harness.join("ada", 4);
  create_run(0, "a", 6);
  for (int i = 0; i < 5; ++i) train(ada, i == 0 ? 20 : 11);
  EXPECT_THAT(more(), ElementsAre(1)) << "four do not share six rows";
}

TEST_F(Width, WhatGainsTooLittleIsGivenBackAndRemembered) {
  Who ada = harness.join("ada", 2);
  create_run(0);
  train(ada, 20);
  ASSERT_THAT(more(), ElementsAre(1));
  train(ada, 18);
  train(ada, 18);
  EXPECT_THAT(more(), ElementsAre(1)) << "measured for a few commits first";
  train(ada, 18);
  EXPECT_THAT(more(), IsEmpty());
  EXPECT_THAT(last_resize(), HasSubstr("2 cards train 1.11 times as fast as 1"));
  for (int i = 0; i < 3; ++i) train(ada, 20);
  EXPECT_THAT(more(), IsEmpty()) << "it is not tried again";
  harness.restart();
  reconnect(ada, 2);
  for (int i = 0; i < 3; ++i) train(ada, 20);
  EXPECT_THAT(more(), IsEmpty()) << "also by the next process";
  EXPECT_EQ(harness.events("lease_resized").size(), 2U);
}

TEST_F(Width, WhatGainsStaysOverARestart) {
  Who ada = harness.join("ada", 2);
  create_run(0);
  train(ada, 20);
  for (int i = 0; i < 4; ++i) train(ada, 11);
  ASSERT_THAT(more(), ElementsAre(1));
  const Epoch before = epoch();
  harness.restart();
  EXPECT_THAT(more(), ElementsAre(1));
  reconnect(ada, 2);
  EXPECT_THAT(more(), ElementsAre(1));
  EXPECT_EQ(epoch(), before);
  train(ada, 11);
  EXPECT_THAT(more(), ElementsAre(1));
}

TEST_F(Width, ANumberIsGrantedAtOnce) {
  harness.join("a-single", 1);
  Who ada = harness.join("double", 2);
  create_run(2);
  EXPECT_EQ(lease()->node, ada.id) << "one slot is fewer than it asks for";
  EXPECT_THAT(more(), ElementsAre(1));
  EXPECT_THAT(harness.events("granted").at(0).reason(), HasSubstr("double slot 0 with 2 cards"));
}

TEST_F(Width, ANodeWithFewerTrainsWithThese) {
  Who ada = harness.join("ada", 1);
  create_run(2);
  ASSERT_EQ(lease()->node, ada.id);
  EXPECT_THAT(more(), IsEmpty());
}

TEST_F(Width, AsManyAreTakenAsShareTheBatch) {
  Who ada = harness.join("ada", 3);
  create_run(4);
  EXPECT_THAT(more(), ElementsAre(1)) << "three do not share 64 rows";
}

TEST_F(Width, ANumberIsKeptThoughOthersWait) {
  Who ada = harness.join("ada", 2);
  create_run(2);
  ASSERT_THAT(more(), ElementsAre(1));
  create_run(2, "b");
  train(ada);
  EXPECT_THAT(more(), ElementsAre(1));
  EXPECT_FALSE(lease("b"));
}

TEST_F(Width, UnlikeCardsTrainNothingTogether) {
  Who ada = testing::make_who("ada");
  ASSERT_FALSE(harness.enrol(ada, harness.first.token).has_error());
  ada.incarnation = 7;
  ada.connection = "ada#1";
  pb::ControlRequest request;
  auto& hello = *request.mutable_hello();
  hello.mutable_version()->set_major(protocol::kVersionMajor);
  hello.mutable_version()->set_minor(protocol::kVersionMinor);
  hello.set_incarnation(ada.incarnation);
  for (const char* device : {"NVIDIA L4", "NVIDIA T4", "NVIDIA L4", "NVIDIA L4"}) {
    pb::Slot& slot = *hello.add_slots();
    slot.set_index(static_cast<std::uint32_t>(hello.slots_size()) - 1);
    slot.set_device(device);
    slot.set_alone(slot.index() == 2);  // a slice
  }
  harness.ask(ada, request);
  create_run(4);
  ASSERT_TRUE(lease());
  EXPECT_EQ(lease()->slot, 0U);
  EXPECT_THAT(more(), ElementsAre(3));
}

TEST_F(Width, AnOldDaemonTrainsOnOneCard) {
  Who ada = harness.join("ada", 2);
  hello_of_minor(ada, protocol::kMinorOfCards - 1, 2);
  create_run(2);
  ASSERT_EQ(lease()->node, ada.id);
  EXPECT_THAT(more(), IsEmpty());
  train(ada);
  EXPECT_THAT(more(), IsEmpty());
}

TEST_F(Width, AHelloWithFewerSlotsNarrows) {
  Who ada = harness.join("ada", 2);
  create_run(2);
  ASSERT_THAT(more(), ElementsAre(1));
  const Epoch before = epoch();
  reconnect(ada, 1);
  EXPECT_THAT(more(), IsEmpty());
  EXPECT_EQ(epoch(), before);
}

TEST_F(Width, ADaemonThatWasReplacedByAnOldOneNarrows) {
  Who ada = harness.join("ada", 2);
  create_run(2);
  ASSERT_THAT(more(), ElementsAre(1));
  hello_of_minor(ada, protocol::kMinorOfCards - 1, 2);
  EXPECT_THAT(more(), IsEmpty());
}

TEST_F(Width, ALostCardLeavesTheLeaseAndIsGivenToNobody) {
  Who ada = harness.join("ada", 2);
  create_run(2);
  ASSERT_THAT(more(), ElementsAre(1));
  pb::Heartbeat beat;
  beat.add_slots()->set_slot(1);
  beat.mutable_slots(0)->set_phase(pb::SLOT_FAILED);
  harness.heartbeat(ada, beat);
  EXPECT_THAT(more(), IsEmpty());
  create_run(1, "b");
  EXPECT_FALSE(lease("b"));
}

TEST_F(Width, APriceIsThatOfAllItsSlots) {
  Who ada = harness.join_priced("ada", 8, 4);
  create_run(2);
  EXPECT_NEAR(harness.run("a").dollars_per_hour(), 4, 1e-9);
  harness.run_for(std::chrono::seconds(36), [&] { harness.heartbeat(ada); });
  EXPECT_NEAR(harness.run("a").dollars(), 0.04, 0.001);
}

TEST_F(Width, ARunWidensWithinItsDollarsAnHour) {
  Who ada = harness.join_priced("ada", 8, 4);
  create_run(0, "a", 64, 5);
  for (int i = 0; i < 3; ++i) train(ada, 10);
  EXPECT_THAT(more(), ElementsAre(1)) << "four cost 8 dollars an hour";
}

TEST_F(Width, ANodeShowsWhatItsFurtherSlotsDo) {
  Who ada = harness.join("ada", 3);
  create_run(2);
  pb::Heartbeat beat;
  for (std::uint32_t slot = 0; slot < 3; ++slot) beat.add_slots()->set_slot(slot);
  beat.mutable_slots(0)->set_run(harness.run("a").id());
  beat.mutable_slots(0)->set_phase(pb::SLOT_TRAINING);
  harness.heartbeat(ada, beat);
  const auto shown = harness.admin_ask(
      [](pb::AdminRequest& request) { request.mutable_node_show()->set_name("ada"); });
  const auto& status = shown.nodes().nodes(0).status();
  ASSERT_EQ(status.size(), 3);
  EXPECT_EQ(status[1].phase(), pb::SLOT_TRAINING);
  EXPECT_EQ(status[1].run(), harness.run("a").id());
  EXPECT_EQ(status[2].phase(), pb::SLOT_IDLE);
}

TEST_F(Width, CardsDivideTheBatch) {
  harness.join("ada", 4);
  create_run(3);
  EXPECT_THAT(harness.last_error.message(), HasSubstr("must divide train.batch_size 64"));
}

TEST_F(Width, AStateWithASlotInTwoLeasesIsDamaged) {
  harness.join("ada", 2);
  create_run(1);
  create_run(1, "b");
  std::string key;
  for (const auto& [each, value] : harness.disk) {
    if (each.starts_with(kExpertPrefix)) key = each;
  }
  stored::Expert record;
  ASSERT_TRUE(record.ParseFromString(harness.disk.at(key)));
  record.mutable_lease()->add_more_slots(1 - record.lease().slot());
  harness.disk[key] = record.SerializeAsString();
  std::vector<KeyValue> state;
  for (const auto& [each, value] : harness.disk) state.push_back({each, value});
  testing::CountingRng rng(1);
  testing::TextAuthority authority;
  const auto loaded = Core::load(harness.config, rng, authority, state, harness.now);
  ASSERT_FALSE(loaded.has_value());
  EXPECT_THAT(loaded.error().message, HasSubstr("a slot of its lease is another's"));
}

}  // namespace
}  // namespace skerry::coordinator
