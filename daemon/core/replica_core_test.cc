// SPDX-License-Identifier: Apache-2.0
// What a daemon holds of others' checkpoints, as its assignment names them.
#include <gmock/gmock.h>

#include "daemon/testing/core_harness.h"

namespace skerry::daemon {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
constexpr auto kIsHeartbeat = &pb::ControlRequest::has_heartbeat;

pb::Replica replica(const std::string& name) {
  pb::Replica replica;
  replica.set_run("r-0000000001");
  replica.set_expert(3);
  *replica.mutable_object() = object(name);
  return replica;
}

class Replicas : public testing::Test {
 protected:
  // Connected, and told to hold these.
  void hold(const std::vector<std::string>& names) {
    if (!node.core->connected()) node.connect();
    node.replicas.clear();
    for (const std::string& name : names) node.replicas.push_back(replica(name));
    node.assign({});
  }
  std::vector<bool> durable_told() {
    const pb::ControlRequest said = node.last_sent(kIsHeartbeat);
    std::vector<bool> durable;
    for (const pb::ReplicaStatus& each : said.heartbeat().replicas())
      durable.push_back(each.durable());
    return durable;
  }
  std::size_t fetches_of(const std::string& name) {
    return static_cast<std::size_t>(
        std::ranges::count_if(node.fetches, [&](const FetchObject& each) {
          return each.object.manifest() == object(name).manifest();
        }));
  }

  Harness node;
};

TEST_F(Replicas, AreFetchedAndReportedAsSoonAsTheyAreDurable) {
  hold({"theirs"});
  ASSERT_EQ(fetches_of("theirs"), 1U);
  node.live(seconds(2));
  EXPECT_THAT(durable_told(), testing::ElementsAre(false));
  node.sent.clear();
  node.pass(milliseconds(100));
  node.stored("theirs");
  EXPECT_THAT(durable_told(), testing::ElementsAre(true)) << "at once, not with the next second";
  EXPECT_EQ(node.last_sent(kIsHeartbeat).heartbeat().assignment_version(), node.version);
  node.live(seconds(2));
  EXPECT_THAT(durable_told(), testing::ElementsAre(true)) << "and with every one that follows";
}

TEST_F(Replicas, GoWithTheAssignmentThatOmitsThem) {
  hold({"old", "new"});
  node.stored("old");
  node.stored("new");
  EXPECT_TRUE(node.drops.empty());
  hold({"new"});
  ASSERT_EQ(node.drops.size(), 1U);
  EXPECT_EQ(node.drops[0].manifest, blake2b("old"));
}

// ---- After a restore ----

// What was here when the coordinator had been restored may be the last copy of
// a run that the backup did not know.
class Outlived : public Replicas {
 protected:
  static CheckpointFacts facts(Step step, ExpertIndex expert = 3,
                               const std::string& run = "r-0000000001") {
    return {{RunId(run), expert}, step};
  }
  // Held and durable; then the coordinator is restored and has said Hello.
  void restore(const std::map<std::string, CheckpointFacts>& here) {
    std::vector<std::string> names;
    for (const auto& [name, known] : here) names.push_back(name);
    hold(names);
    for (const auto& [name, known] : here) node.stored(name, known);
    node.step(ConnectionClosed{"reset"});
    node.connect(2);
  }
  void disk_is_full() {
    node.step(SnapshotFailed{0, 1, fail(ErrorCode::kExhausted, "the disk is full")});
  }
  std::string logged() const {
    std::string all;
    for (const LogEntry& entry : node.last.log) all += entry.message + "\n";
    return all;
  }
  std::vector<Hash> dropped() const {
    std::vector<Hash> all;
    for (const DropObject& each : node.drops) all.push_back(each.manifest);
    return all;
  }
};

TEST_F(Outlived, StaysUntilItsRunIsDeleted) {
  restore({{"theirs", facts(10)}, {"another's", facts(10, 3, "r-another")}});
  hold({});
  EXPECT_THAT(dropped(), testing::IsEmpty());
  node.step(RunGone{"r-another"});
  EXPECT_THAT(dropped(), testing::ElementsAre(blake2b("another's")));
  Harness again({.state = node.saved,
                 .objects = {{blake2b("theirs"), ObjectKind::kCheckpoint}},
                 .checkpoints = {{blake2b("theirs"), facts(10)}}});
  again.connect(2);
  again.assign({});
  again.step(RunGone{"r-0000000001"});
  EXPECT_EQ(again.drops.size(), 1U) << "after a start as well: the manifest says whose it is";
}

TEST_F(Outlived, GoesOnceANewerReplicaOfItsExpertIsDurable) {
  restore({{"old", facts(10)}, {"another's", facts(10, 4)}});
  hold({"new"});
  EXPECT_THAT(dropped(), testing::IsEmpty()) << "it is not here yet";
  node.stored("new", facts(20));
  EXPECT_THAT(dropped(), testing::ElementsAre(blake2b("old")));
}

TEST_F(Outlived, StaysBesideANewerReplicaThatWasNotCheckedSinceTheStart) {
  restore({{"old", facts(10)}});
  hold({"new"});
  Harness again({.state = node.saved,
                 .objects = {{blake2b("old"), ObjectKind::kCheckpoint},
                             {blake2b("new"), ObjectKind::kCheckpoint}},
                 .checkpoints = {{blake2b("old"), facts(10)}, {blake2b("new"), facts(20)}}});
  again.connect(2);
  again.replicas.push_back(replica("new"));
  again.assign({});
  EXPECT_TRUE(again.drops.empty());
  again.stored("new", facts(20));
  EXPECT_EQ(again.drops.size(), 1U);
}

TEST_F(Outlived, StaysBesideAnOlderReplicaOfItsExpert) {
  restore({{"later", facts(50)}});
  hold({"as of the backup"});
  node.stored("as of the backup", facts(20));
  EXPECT_THAT(dropped(), testing::IsEmpty());
}

TEST_F(Outlived, GoesOnceItsExpertIsTrainedBeyondIt) {
  restore({{"old", facts(10)}});
  pb::SlotAssignment next = node.grant(1);
  next.set_epoch(Epoch(2, 1).value());
  *next.mutable_head() = object("adopted");
  next.set_head_step(15);
  node.replicas.clear();
  node.assign({next});
  EXPECT_THAT(dropped(), testing::IsEmpty());
  node.stored("adopted", facts(15));
  EXPECT_THAT(dropped(), testing::ElementsAre(blake2b("old")));
}

TEST_F(Outlived, IsAnyReplicaAgainOnceAnAssignmentNamesIt) {
  restore({{"theirs", facts(10)}});
  hold({"theirs"});
  hold({});
  EXPECT_THAT(dropped(), testing::ElementsAre(blake2b("theirs")));
}

TEST_F(Outlived, IsNotLetGoByAnAssignmentOfTheFormerCoordinator) {
  restore({{"old", facts(10)}, {"new", facts(20)}});
  node.live(seconds(1));
  hold({});
  EXPECT_THAT(dropped(), testing::IsEmpty());
}

// The checkpoints that the coordinator has on its own disk go before those that
// it may not know.
TEST_F(Outlived, GoesLastFromAFullDisk) {
  restore(
      {{"a", facts(30, 5)}, {"b", facts(20)}, {"c", facts(40)}, {"d", facts(60, 3, "r-known")}});
  pb::Replica of_known = replica("e");
  of_known.set_run("r-known");
  of_known.set_expert(7);
  node.replicas = {of_known};
  node.assign({});
  const auto evicted = [&] {
    node.drops.clear();
    disk_is_full();
    return dropped();
  };
  EXPECT_THAT(evicted(), testing::ElementsAre(blake2b("b"))) << "a later one of its expert is here";
  EXPECT_THAT(logged(), testing::HasSubstr("the checkpoint of step 20 of r-0000000001/3"));
  EXPECT_THAT(evicted(), testing::ElementsAre(blake2b("d"))) << "the coordinator knows its run";
  EXPECT_EQ(evicted().size(), 1U);
  EXPECT_EQ(evicted().size(), 1U);
  EXPECT_THAT(evicted(), testing::IsEmpty());
}

TEST_F(Outlived, GoesAfterWhatThisNodeCommittedSinceTheRestore) {
  restore({{"theirs", facts(10)}});
  pb::SlotAssignment next = node.grant(1, 0, 4);
  next.set_epoch(Epoch(2, 1).value());
  node.replicas.clear();
  node.assign({next});
  node.stored("shard");
  node.take_engine();
  node.ready();
  node.answer_heartbeat();
  node.round(0, 10);
  node.answer_commit(pb::COMMIT_ACCEPTED);
  node.assign({});
  node.exit_engine("signal 9");
  ASSERT_EQ(node.core->kept().size(), 1U);
  disk_is_full();
  EXPECT_TRUE(node.core->kept().empty());
  EXPECT_THAT(dropped(), testing::ElementsAre(blake2b("checkpoint 10")));
}

TEST_F(Outlived, IsBoundedAndSaysWhatGoes) {
  pb::DaemonState state;
  state.set_format(1);
  state.set_generation(1);
  Recovered found{.state = state.SerializeAsString()};
  for (std::size_t i = 0; i < kOutlivedMost + 2; ++i) {
    const Hash name = blake2b(text("checkpoint ", i));
    found.objects[name] = ObjectKind::kCheckpoint;
    found.checkpoints[name] = facts(10 + i, i == 7 ? 8 : 3);
  }
  Harness full(std::move(found));
  full.connect(2);
  std::string words;
  for (const LogEntry& entry : full.last.log) words += entry.message + "\n";
  EXPECT_THAT(words, testing::HasSubstr("the checkpoint of step 10 of r-0000000001/3"));
  EXPECT_THAT(words, testing::HasSubstr("the checkpoint of step 11 of r-0000000001/3"));
  full.assign({});
  EXPECT_EQ(full.drops.size(), 2U);
}

// A state of an earlier version names the manifests alone, and a later one is
// read by it.
TEST_F(Outlived, IsReadFromAStateOfTheFormerVersion) {
  pb::DaemonState state;
  state.set_format(1);
  state.set_generation(2);
  state.add_outlived(blake2b("theirs").raw());
  Harness again({.state = state.SerializeAsString(),
                 .objects = {{blake2b("theirs"), ObjectKind::kCheckpoint}},
                 .checkpoints = {{blake2b("theirs"), facts(10)}}});
  again.connect(2);
  again.assign({});
  EXPECT_TRUE(again.drops.empty());
  again.step(RunGone{"r-0000000001"});
  EXPECT_EQ(again.drops.size(), 1U);
}

// Whose it is need not be known.
TEST_F(Replicas, StayWhereTheCoordinatorThatOmitsThemWasRestored) {
  hold({"theirs"});
  node.stored("theirs");
  node.step(ConnectionClosed{"reset"});
  node.connect(2);
  node.replicas.clear();
  node.assign({});
  EXPECT_TRUE(node.drops.empty());
  Harness again({.state = node.saved, .objects = {{blake2b("theirs"), ObjectKind::kCheckpoint}}});
  again.connect(2);
  again.assign({});
  EXPECT_TRUE(again.drops.empty()) << "over a start as well";
  again.step(SnapshotFailed{0, 1, fail(ErrorCode::kExhausted, "the disk is full")});
  EXPECT_EQ(again.drops.size(), 1U) << "until there is no room";
}

TEST_F(Replicas, AreWhatATakeoverStartsFrom) {
  hold({"head"});
  node.stored("head");
  pb::SlotAssignment next = node.grant(2);
  *next.mutable_head() = object("head");
  next.set_head_step(40);
  node.replicas.clear();
  node.assign({next});
  node.stored("shard");
  ASSERT_TRUE(node.started());
  EXPECT_EQ(node.starts.back().resume.manifest(), object("head").manifest());
  EXPECT_EQ(fetches_of("head"), 1U) << "when it was a replica, and never again";
  EXPECT_TRUE(node.drops.empty());
}

TEST_F(Replicas, OneThatIsFoundDamagedIsNoLongerReportedAndComesAgain) {
  hold({"theirs"});
  node.stored("theirs");
  node.step(ObjectFailed{blake2b("theirs"), fail(ErrorCode::kCorrupt, "a chunk is damaged")});
  ASSERT_EQ(fetches_of("theirs"), 2U);
  EXPECT_TRUE(node.fetches.back().verify);
  node.live(seconds(1));
  EXPECT_THAT(durable_told(), testing::ElementsAre(false));
}

TEST_F(Replicas, StayOverARestartUntilTheCoordinatorHasAnswered) {
  Harness again({.state = "", .objects = {{blake2b("theirs"), ObjectKind::kCheckpoint}}});
  again.connect();
  again.live(seconds(1));
  EXPECT_TRUE(again.drops.empty());
  again.replicas.push_back(replica("theirs"));
  again.assign({});
  EXPECT_TRUE(again.drops.empty());
  EXPECT_EQ(again.fetches.size(), 1U) << "its host looks at the disk first";
}

}  // namespace
}  // namespace skerry::daemon
