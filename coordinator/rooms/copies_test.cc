// SPDX-License-Identifier: Apache-2.0
// Copies of checkpoints at nodes: what commits wait for, who holds what, and
// what becomes of copies that are lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/testing/testing.h"

namespace skerry::coordinator {
namespace {

using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::Contains;
using testing::Harness;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Who;

class Copies : public ::testing::Test {
 protected:
  void begin(std::uint32_t copies) {
    ada = harness.join("ada", 1, "rack-a");
    pb::RunSpec spec = testing::run_spec("fashion");
    spec.set_copies(copies);
    harness.add_dataset("data", 1);
    run = harness.create_run(spec);
    slot = harness.assignment(ada).slots(0);
  }
  pb::CommitReply commit_here(std::uint64_t steps = 10) {
    slot = harness.assignment(ada).slots(0);
    last = testing::next_commit(slot, steps);
    const pb::CommitReply reply = harness.send_commit(ada, last);
    harness.inbox(ada).clear();
    harness.store(testing::object_of(last));
    return harness.inbox(ada).empty() ? reply : harness.inbox(ada).back().commit();
  }
  bool is_accepted() { return expert().step() == last.to_step(); }
  std::vector<std::string> why() {
    const auto reply = harness.admin_ask(
        [](pb::AdminRequest& request) { request.mutable_run_why()->set_name("fashion"); });
    return {reply.why().reasons().begin(), reply.why().reasons().end()};
  }
  pb::ExpertInfo expert() { return harness.run("fashion").experts(0); }
  void live(Duration time, std::vector<Who*> nodes) {
    harness.run_for(time, [&] {
      for (Who* node : nodes) harness.heartbeat(*node);
    });
  }

  Harness harness;
  Who ada;
  std::string run;
  pb::SlotAssignment slot;
  pb::Commit last;
};

TEST_F(Copies, ACommitWaitsUntilEachPlaceHasReportedForItself) {
  begin(3);
  Who bob = harness.join("bob", 1, "rack-b");
  Who cid = harness.join("cid", 1, "rack-c");
  EXPECT_EQ(commit_here().status(), pb::COMMIT_FETCHING);
  EXPECT_EQ(expert().step(), 0U);
  EXPECT_EQ(harness.send_commit(ada, last).status(), pb::COMMIT_FETCHING)
      << "asking again changes nothing";
  EXPECT_THAT(why(),
              Contains(AllOf(HasSubstr("the commit of step 10 waits until it is durable at "),
                             HasSubstr("bob (0 B of "), HasSubstr("cid (0 B of "))));
  ASSERT_EQ(harness.replicate(bob).replicas_size(), 1);
  EXPECT_FALSE(is_accepted());
  harness.replicate(cid);
  EXPECT_TRUE(is_accepted());
  EXPECT_EQ(expert().step(), 10U);
  EXPECT_EQ(expert().copies(), 3U);
  EXPECT_EQ(expert().unanchored_steps(), 0U);
  EXPECT_THAT(harness.events("committed").at(0).reason(), HasSubstr("in 3 places"));
}

TEST_F(Copies, ANodeThatJoinsBeforeTheFirstCommitHoldsItsShare) {
  ada = harness.join("ada", 2, "rack-a");
  pb::RunSpec spec = testing::run_spec("fashion");
  spec.set_copies(2);
  harness.add_dataset("data", 2);
  harness.create_run(spec);
  Who bob = harness.join("bob", 1, "rack-b");
  Who cid = harness.join("cid", 1, "rack-c");
  const pb::Assignment told = harness.assignment(ada);
  for (const pb::SlotAssignment& each : told.slots())
    EXPECT_EQ(harness.send_commit(ada, testing::next_commit(each, 10)).status(),
              pb::COMMIT_FETCHING);
  EXPECT_EQ(harness.assignment(bob).replicas_size(), 1);
  EXPECT_EQ(harness.assignment(cid).replicas_size(), 1);
  Who dot = harness.join("dot", 1, "rack-d");
  live(seconds(2), {&ada, &bob, &cid, &dot});
  EXPECT_EQ(harness.assignment(dot).replicas_size(), 0) << "what is held stays where it is";
}

TEST_F(Copies, NodesOfOneHostAreOnePlaceAndTheCommittersHostIsNone) {
  begin(3);
  Who mate = harness.join("mate", 1, "rack-a");
  Who bob = harness.join("bob", 1, "rack-b");
  Who ben = harness.join("ben", 1, "rack-b");
  EXPECT_EQ(commit_here().status(), pb::COMMIT_FETCHING);
  EXPECT_EQ(harness.replicate(mate).replicas_size(), 0);
  EXPECT_EQ(harness.replicate(bob).replicas_size() + harness.replicate(ben).replicas_size(), 1);
  EXPECT_TRUE(is_accepted()) << "two places are all there are";
  EXPECT_EQ(expert().copies(), 2U);
  EXPECT_THAT(why(), Contains(HasSubstr("kept in 2 places, not 3: no other machine is free")));
}

TEST_F(Copies, ARunOfOneWaitsForNoNode) {
  begin(1);
  Who bob = harness.join("bob", 1, "rack-b");
  EXPECT_EQ(commit_here().status(), pb::COMMIT_ACCEPTED);
  EXPECT_EQ(expert().copies(), 1U);
  EXPECT_EQ(harness.replicate(bob).replicas_size(), 1) << "it stands by";
  EXPECT_EQ(expert().copies(), 2U);
}

TEST_F(Copies, WhatANodeSaidBeforeItWasToldCountsForNothing) {
  begin(2);
  Who bob = harness.join("bob", 1, "rack-b");
  bob.applied = harness.assignment(bob).version();
  EXPECT_EQ(commit_here().status(), pb::COMMIT_FETCHING);
  bob.durable.insert(last.manifest().manifest());  // of an assignment that named it before
  harness.heartbeat(bob);
  EXPECT_FALSE(is_accepted());
  harness.replicate(bob);
  EXPECT_TRUE(is_accepted());
}

TEST_F(Copies, ANodeThatIsLostIsWaitedForNoLonger) {
  begin(2);
  Who bob = harness.join("bob", 1, "rack-b");
  EXPECT_EQ(commit_here().status(), pb::COMMIT_FETCHING);
  harness.step(Closed{bob.connection});
  live(seconds(3), {&ada});
  EXPECT_TRUE(is_accepted()) << "min(wanted, available)";
  EXPECT_EQ(expert().copies(), 1U);
}

TEST_F(Copies, ANodeThatReceivesNothingIsWaitedForOnlySoLong) {
  begin(2);
  Who bob = harness.join("bob", 1, "rack-b");
  EXPECT_EQ(commit_here().status(), pb::COMMIT_FETCHING);
  live(harness.config.replica_patience, {&ada, &bob});
  EXPECT_FALSE(is_accepted());
  live(seconds(3), {&ada, &bob});
  EXPECT_TRUE(is_accepted());
  EXPECT_EQ(harness.events("replica_stalled").size(), 1U);
  EXPECT_EQ(harness.assignment(bob).replicas_size(), 0);
}

TEST_F(Copies, LostOnesAreMadeAgain) {
  begin(2);
  Who bob = harness.join("bob", 1, "rack-b");
  commit_here();
  harness.replicate(bob);
  ASSERT_TRUE(is_accepted());
  Who cid = harness.join("cid", 1, "rack-c");
  EXPECT_EQ(harness.replicate(cid).replicas_size(), 0) << "who holds one keeps it";
  harness.step(Closed{bob.connection});
  live(seconds(3), {&ada, &cid});
  EXPECT_EQ(expert().copies(), 1U);
  const pb::Assignment told = harness.replicate(cid);
  ASSERT_EQ(told.replicas_size(), 1);
  EXPECT_EQ(told.replicas(0).object().manifest(), last.manifest().manifest());
  EXPECT_TRUE(harness.core().may_read(cid.id, *Hash::from_raw(last.manifest().manifest())));
  EXPECT_FALSE(harness.core().may_read(bob.id, *Hash::from_raw(last.manifest().manifest())));
  EXPECT_EQ(expert().copies(), 2U);
}

TEST_F(Copies, TheOldOneIsNamedUntilTheNewOneIsCommitted) {
  begin(2);
  Who bob = harness.join("bob", 1, "rack-b");
  commit_here();
  harness.replicate(bob);
  const std::string first = last.manifest().manifest();
  commit_here();
  pb::Assignment told = harness.replicate(bob);  // and so the second is committed
  ASSERT_EQ(told.replicas_size(), 2);
  EXPECT_EQ(told.replicas(0).object().manifest(), first);
  told = harness.assignment(bob);
  ASSERT_EQ(told.replicas_size(), 1);
  EXPECT_EQ(told.replicas(0).object().manifest(), last.manifest().manifest());
}

TEST_F(Copies, WhoHoldsOneTakesOver) {
  begin(2);
  Who zoe = harness.join("zoe", 1, "rack-z");
  commit_here();
  harness.replicate(zoe);
  ASSERT_TRUE(is_accepted());
  Who bob = harness.join("bob", 1, "rack-b");  // free too, and before her by name
  harness.step(Closed{ada.connection});
  live(seconds(2), {&zoe, &bob});
  EXPECT_TRUE(testing::held_by(harness, zoe));
  EXPECT_THAT(harness.events("granted").back().reason(), HasSubstr("which holds its checkpoint"));
  EXPECT_EQ(harness.assignment(zoe).replicas_size(), 0) << "it is her own now";
  EXPECT_EQ(harness.assignment(bob).replicas_size(), 1) << "and the next one stands by";
}

TEST_F(Copies, AfterARestartNodesReportAnewAndAreWaitedFor) {
  begin(2);
  Who bob = harness.join("bob", 1, "rack-b");
  commit_here();
  harness.replicate(bob);
  harness.restart();
  harness.reconnect(ada);
  EXPECT_EQ(expert().step(), 10U);
  EXPECT_EQ(expert().copies(), 1U);
  EXPECT_EQ(commit_here().status(), pb::COMMIT_FETCHING) << "bob was here and is expected back";
  harness.reconnect(bob);
  harness.replicate(bob);
  EXPECT_TRUE(is_accepted());
  EXPECT_EQ(expert().copies(), 2U);
}

TEST_F(Copies, WhatTheCoordinatorsDiskLosesComesBackFromANode) {
  begin(2);
  Who bob = harness.join("bob", 1, "rack-b");
  commit_here();
  harness.replicate(bob);
  harness.fetches.clear();
  harness.objects.erase(*Hash::from_raw(last.manifest().manifest()));
  harness.step(ObjectDamaged{*Hash::from_raw(last.manifest().manifest())});
  EXPECT_EQ(expert().unanchored_steps(), 10U);
  EXPECT_EQ(expert().copies(), 1U);
  live(seconds(1), {&ada, &bob});
  ASSERT_EQ(harness.fetches.size(), 1U);
  EXPECT_EQ(harness.fetches[0].from, bob.id);
  harness.store(testing::object_of(last));
  EXPECT_EQ(expert().unanchored_steps(), 0U);
  EXPECT_EQ(expert().copies(), 2U);
  EXPECT_EQ(harness.events("object_mended").size(), 1U);
}

// Found where bob asks for it: nothing durable names it yet.
TEST_F(Copies, ACommitThatWaitsForThemIsFetchedAnewWhereTheDiskLosesIt) {
  begin(2);
  Who bob = harness.join("bob", 1, "rack-b");
  EXPECT_EQ(commit_here().status(), pb::COMMIT_FETCHING);
  live(seconds(1), {&ada, &bob});
  const Hash manifest = *Hash::from_raw(last.manifest().manifest());
  harness.fetches.clear();
  harness.objects.erase(manifest);
  harness.step(ObjectDamaged{manifest});
  harness.replicate(bob);
  EXPECT_FALSE(is_accepted()) << "the coordinator has no whole copy";
  EXPECT_EQ(harness.send_commit(ada, last).status(), pb::COMMIT_FETCHING);
  ASSERT_EQ(harness.fetches.size(), 1U);
  EXPECT_THAT(harness.dropped, IsEmpty()) << "it is on its way again";
  harness.store(testing::object_of(last));
  EXPECT_TRUE(is_accepted());
}

// Bob takes nothing; ada is gone in twenty seconds. Her last steps are whole on
// the coordinator's disk.
TEST_F(Copies, ANodeThatGoesAwayWaitsForThemAMomentOnly) {
  begin(2);
  Who bob = harness.join("bob", 1, "rack-b");
  EXPECT_EQ(commit_here().status(), pb::COMMIT_FETCHING);
  live(seconds(2), {&ada, &bob});
  const auto leave = [&](Duration time) {
    harness.run_for(time, [&] {
      harness.heartbeat(ada, true);
      harness.heartbeat(bob);
    });
  };
  leave(harness.config.drain_patience - seconds(1));
  EXPECT_FALSE(is_accepted()) << "bob may still report";
  leave(seconds(3));
  ASSERT_TRUE(is_accepted());
  EXPECT_EQ(expert().copies(), 1U) << "what bob has not reported does not count";
  EXPECT_THAT(harness.events("committed").at(0).reason(),
              HasSubstr("still to come: its node is going away"));
  // What follows waits for nothing either; and the head is copied all the same.
  EXPECT_EQ(commit_here().status(), pb::COMMIT_ACCEPTED);
  harness.replicate(bob);
  EXPECT_EQ(expert().copies(), 2U);
}

TEST_F(Copies, ANodeThatHasATimeToGoWaitsHalfOfIt) {
  begin(2);
  Who bob = harness.join("bob", 1, "rack-b");
  EXPECT_EQ(commit_here().status(), pb::COMMIT_FETCHING);
  const Duration ends = harness.now.boot + seconds(12);
  const auto leave = [&](Duration time) {
    harness.run_for(time, [&] {
      pb::Heartbeat beat;
      beat.set_draining(true);
      beat.set_leaves_in_ms(
          static_cast<std::uint64_t>((ends - harness.now.boot) / std::chrono::milliseconds(1)));
      harness.heartbeat(ada, beat);
      harness.heartbeat(bob);
    });
  };
  leave(seconds(5));
  EXPECT_FALSE(is_accepted());
  leave(seconds(3));
  EXPECT_TRUE(is_accepted());
}

// The spare fetches what it would need to take over; no commit waits for it.
TEST_F(Copies, OneThatStandsByHasTheShardsToo) {
  begin(1);
  Who bob = harness.join("bob", 1, "rack-b");
  EXPECT_EQ(harness.assignment(bob).replicas_size(), 0);
  ASSERT_EQ(commit_here().status(), pb::COMMIT_ACCEPTED);
  live(seconds(3), {&ada, &bob});
  const pb::Assignment told = harness.assignment(bob);
  ASSERT_EQ(told.replicas_size(), 1);
  EXPECT_EQ(told.replicas(0).object().manifest(), last.manifest().manifest());
  ASSERT_EQ(told.replicas(0).shards_size(), 1);
  const Hash shard = *Hash::from_raw(told.replicas(0).shards(0).manifest());
  EXPECT_TRUE(harness.core().may_read(bob.id, shard));
  Who cid = harness.join("cid", 1, "rack-c");
  EXPECT_FALSE(harness.core().may_read(cid.id, shard));
}

TEST_F(Copies, OneThatStandsByTakesOverBeforeItHasTheLastCheckpoint) {
  begin(1);
  Who bob = harness.join("bob", 1, "rack-b");
  ASSERT_EQ(commit_here().status(), pb::COMMIT_ACCEPTED);
  Who cid = harness.join("cid"), dot = harness.join("dot"), eve = harness.join("eve");
  ASSERT_EQ(harness.assignment(bob).replicas_size(), 1);
  harness.step(Closed{ada.connection});
  live(seconds(3), {&bob, &cid, &dot, &eve});
  EXPECT_EQ(harness.assignment(bob).slots_size(), 1);
  EXPECT_THAT(harness.events("granted").back().reason(), HasSubstr("which stands by for it"));
}

// Told by a person to give its work back, it has all the time it needs.
TEST_F(Copies, OfANodeThatMerelyGivesWayAreWaitedFor) {
  begin(2);
  Who bob = harness.join("bob", 1, "rack-b");
  EXPECT_EQ(commit_here().status(), pb::COMMIT_FETCHING);
  harness.admin_ask(
      [](pb::AdminRequest& request) { request.mutable_node_drain()->set_name("ada"); });
  live(harness.config.drain_patience + seconds(2), {&ada, &bob});
  EXPECT_FALSE(is_accepted());
  harness.replicate(bob);
  EXPECT_TRUE(is_accepted());
}

TEST_F(Copies, OfACommitThatIsFencedAreNotKept) {
  begin(2);
  Who bob = harness.join("bob", 1, "rack-b");
  EXPECT_EQ(commit_here().status(), pb::COMMIT_FETCHING);
  harness.step(Closed{ada.connection});
  live(seconds(2), {&bob});
  ASSERT_TRUE(testing::held_by(harness, bob));
  EXPECT_EQ(harness.assignment(bob).replicas_size(), 0);
  live(harness.config.unclaimed_objects + seconds(1), {&bob});
  ASSERT_EQ(harness.dropped.size(), 1U);
  EXPECT_EQ(harness.dropped[0].manifest.raw(), last.manifest().manifest());
}

}  // namespace
}  // namespace skerry::coordinator
