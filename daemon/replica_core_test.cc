// What a daemon holds of others' checkpoints, as its assignment names them.
#include <gmock/gmock.h>

#include "daemon/core_harness.h"

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
    for (const pb::ReplicaStatus& each : said.heartbeat().replicas()) durable.push_back(each.durable());
    return durable;
  }
  std::size_t fetches_of(const std::string& name) {
    return static_cast<std::size_t>(std::ranges::count_if(node.fetches, [&](const FetchObject& each) {
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

// It may be the last copy of a run that the backup did not know.
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
