// SPDX-License-Identifier: Apache-2.0
#include "coordinator/host/fact_publisher.h"

#include <gmock/gmock.h>

#include "base/text.h"
#include "gossip/router_parts.h"
#include "gossip/testing/testing.h"
#include "storage/manifest.h"

namespace skerry::coordinator {
namespace {

constexpr std::int64_t kToday = 1'760'000'000'000;

pb::ObjectRef object(const std::string& name) {
  pb::ObjectRef ref;
  ref.set_manifest(blake2b(name).raw());
  ref.set_manifest_bytes(100);
  ref.set_bytes(1000);
  return ref;
}

RunFacts facts(Step step = 10) {
  RunFacts facts;
  facts.about.mutable_run()->set_id("r-1");
  facts.about.mutable_run()->set_name("birds");
  facts.about.mutable_dataset()->set_name("birds");
  facts.about.mutable_dataset()->set_partitions(1);
  pb::DatasetFile& router = *facts.about.add_router();
  *router.mutable_object() = object("router");
  router.set_role("router");
  pb::ExpertRecord& expert = facts.experts.emplace_back();
  expert.set_run("r-1");
  expert.set_step(step);
  expert.set_epoch(1);
  expert.set_share(1);
  *expert.mutable_checkpoint() = object(text("checkpoint ", step));
  *expert.mutable_statistics() = object("statistics");
  return facts;
}

class FactPublisherTest : public ::testing::Test {
 protected:
  Now at() const { return {boot, kToday + boot / std::chrono::milliseconds(1)}; }
  void round() {
    boot += std::chrono::seconds(11);
    publisher.talk().tick(at());
  }
  const gossip::Table& table() { return publisher.talk().table(); }

  const protocol::Identity identity = protocol::Identity::generate();
  Duration boot = std::chrono::seconds(100);
  FactPublisher publisher{identity, 100, 1, "", at()};
};

TEST_F(FactPublisherTest, TellsRunsHeadsAndRevocations) {
  const NodeId bad(std::string(32, 'b'));
  publisher.tell({facts()}, {}, {bad}, at());
  round();
  const auto parts = gossip::router_parts(table(), RunId("r-1"), at());
  ASSERT_TRUE(parts) << parts.error().message;
  EXPECT_EQ(parts->about.name(), "birds");
  ASSERT_EQ(parts->experts.size(), 1U);
  EXPECT_TRUE(parts->experts[0].acknowledged);
  EXPECT_EQ(parts->experts[0].best.step(), 10U);
  EXPECT_TRUE(table().is_revoked(bad, at()));
  publisher.tell({facts(20)}, {}, {bad}, at());
  round();
  EXPECT_EQ(gossip::router_parts(table(), RunId("r-1"), at())->experts[0].best.step(), 20U);
}

class FactPublisherOfPeers : public ::testing::Test {
 protected:
  FactPublisherOfPeers() { publisher.talk().connected(passer.id(), false, gossip::at({})); }
  void hear(const gossip::Author& author, const std::string& address) {
    pb::GossipMessage message;
    *message.add_records() = author.sign(gossip::node_fact(address), 1);
    publisher.talk().received(passer.id(), message, gossip::at({}));
  }
  std::size_t told(std::size_t limit_bytes) {
    return gossip::load_table(publisher.peers(limit_bytes, gossip::at({})), verifier, {},
                              gossip::at({}))
        .size();
  }
  const gossip::Author passer{1};
  const gossip::Author second{2};
  const gossip::Author third{3};
  gossip::Verifier verifier{gossip::the_coordinator().ed25519_key()};
  FactPublisher publisher{gossip::the_coordinator(), 100, 1, "", gossip::at({})};
};

TEST_F(FactPublisherOfPeers, TellsThoseThatCanBeDialledAsManyAsHaveRoom) {
  hear(passer, "tcp://192.0.2.7:4000");
  hear(second, "tcp://192.0.2.8:4000");
  hear(third, "");
  EXPECT_EQ(publisher.talk().table().size(), 3U);
  EXPECT_EQ(told(1 << 20), 2U);
  const std::size_t both = publisher.peers(1 << 20, gossip::at({})).size();
  EXPECT_EQ(told(both * 2 / 3), 1U);
  EXPECT_EQ(told(10), 0U);
}

// Nodes accept its records, and an ensemble is whole without it.
TEST_F(FactPublisherTest, ARouterThatIsTrainedIsNoExpert) {
  RunFacts told = facts();
  told.about.mutable_run()->mutable_spec()->set_router_kind("learned");
  pb::ExpertRecord router = told.experts[0];
  router.set_expert(1);
  router.clear_statistics();
  *router.mutable_checkpoint() = object("router");
  told.experts.push_back(router);
  publisher.tell({told}, {}, {}, at());
  round();
  const auto parts = gossip::router_parts(table(), RunId("r-1"), at());
  ASSERT_TRUE(parts) << parts.error().message;
  EXPECT_EQ(parts->experts.size(), 1U);
  EXPECT_EQ(parts->about.experts(), 2U);
  ASSERT_TRUE(parts->learned_router);
  EXPECT_EQ(parts->learned_router->best.checkpoint().manifest(), object("router").manifest());
  int checkpoints = 0;
  table().for_each(
      at(), [&](const gossip::Entry& entry) { checkpoints += entry.record->body.has_expert(); });
  EXPECT_EQ(checkpoints, 2);
}

TEST_F(FactPublisherTest, TellsWhoWasRemoved) {
  RunFacts two = facts();
  two.about.mutable_dataset()->set_partitions(2);
  two.experts.push_back(two.experts[0]);
  two.experts[1].set_expert(1);
  publisher.tell({two}, {}, {}, at());
  round();
  EXPECT_EQ(gossip::router_parts(table(), RunId("r-1"), at())->experts.size(), 2U);
  two.removed = {1};
  publisher.tell({two}, {}, {}, at());
  round();
  const auto parts = gossip::router_parts(table(), RunId("r-1"), at());
  ASSERT_EQ(parts->experts.size(), 1U);
  EXPECT_EQ(parts->experts[0].index, 0U);
  two.removed.clear();
  publisher.tell({two}, {}, {}, at());
  round();
  EXPECT_EQ(gossip::router_parts(table(), RunId("r-1"), at())->experts.size(), 2U);
}

TEST_F(FactPublisherTest, ServesTheSpecificationThatItNames) {
  publisher.tell({facts()}, {}, {}, at());
  round();
  const pb::ObjectRef spec = gossip::router_parts(table(), RunId("r-1"), at())->spec.object;
  const Hash name = *Hash::from_raw(spec.manifest());
  const std::string* encoded = publisher.read(name, name);
  ASSERT_NE(encoded, nullptr);
  const auto manifest = storage::decode_manifest(*encoded);
  ASSERT_TRUE(manifest) << manifest.error().message;
  std::string bytes;
  for (const storage::Chunk& chunk : storage::distinct_chunks(manifest->manifest)) {
    ASSERT_NE(publisher.read(name, chunk.hash), nullptr);
    bytes += *publisher.read(name, chunk.hash);
  }
  EXPECT_EQ(bytes, facts().about.SerializeAsString());
  EXPECT_EQ(publisher.read(blake2b("another"), blake2b("another")), nullptr);
  EXPECT_EQ(publisher.read(name, blake2b("another")), nullptr);
}

TEST_F(FactPublisherTest, ARunThatWasDeletedIsWithdrawnInALaterLifeToo) {
  publisher.tell({facts()}, {}, {}, at());
  round();
  FactPublisher later(identity, 100, 2, publisher.save(at()), at());
  EXPECT_EQ(gossip::known_runs(later.talk().table(), at()).size(), 1U);
  later.tell({}, {RunId("r-1")}, {}, at());
  publisher.tell({}, {RunId("r-1")}, {}, at());
  boot += std::chrono::seconds(11);
  later.talk().tick(at());
  publisher.talk().tick(at());
  EXPECT_TRUE(gossip::known_runs(table(), at()).empty());
  EXPECT_TRUE(gossip::known_runs(later.talk().table(), at()).empty());
}

// A coordinator that was restored from a backup that is older than a run has
// nothing of it deleted.
TEST_F(FactPublisherTest, ARunThatIsMerelyUnknownIsLeftAlone) {
  publisher.tell({facts()}, {}, {}, at());
  round();
  FactPublisher later(identity, 100, 2, publisher.save(at()), at());
  later.tell({}, {RunId("another")}, {}, at());
  for (int i = 0; i < 3; ++i) {
    boot += std::chrono::seconds(11);
    later.talk().tick(at());
  }
  ASSERT_EQ(gossip::known_runs(later.talk().table(), at()).size(), 1U);
  const std::optional<RecordsReceived> heard = later.hear(at());
  ASSERT_TRUE(heard);
  ASSERT_EQ(heard->runs.size(), 1U);
  EXPECT_EQ(heard->runs[0].run(), "r-1");
  EXPECT_FALSE(later.hear(at())) << "nothing new";
  const RunRecords records = later.records_of(RunId("r-1"), at());
  ASSERT_EQ(records.heads.size(), 1U);
  EXPECT_EQ(records.heads[0].record.step(), 10U);
}

// An older checkpoint that a node still holds does not take the place of what
// was acknowledged.
TEST_F(FactPublisherOfPeers, AnAdoptionIsToldOfTheAcknowledgedHeadWhoeverHoldsIt) {
  std::uint64_t counter = 0;
  const auto hear_fact = [&](const gossip::Author& author, const pb::RecordBody& fact) {
    pb::GossipMessage message;
    *message.add_records() = author.sign(fact, ++counter);
    publisher.talk().received(passer.id(), message, gossip::at({}));
  };
  hear_fact(gossip::Author(0), gossip::run_fact("r-1", 1));
  hear_fact(gossip::Author(0), gossip::expert_fact("r-1", 0, 500, "acknowledged"));
  hear_fact(second, gossip::expert_fact("r-1", 0, 100, "older"));
  hear_fact(second, gossip::node_fact("tcp://two:1", {"older"}));
  const RunRecords records = publisher.records_of(RunId("r-1"), gossip::at({}));
  ASSERT_FALSE(records.heads.empty());
  EXPECT_EQ(records.heads[0].record.step(), 500U);
  EXPECT_TRUE(records.heads[0].acknowledged);
}

// From a node that was away while it was deleted.
TEST_F(FactPublisherTest, AnOlderRecordOfADeletedRunIsWithdrawnWhenItTurnsUp) {
  publisher.tell({facts()}, {}, {}, at());
  round();
  FactPublisher later(identity, 100, 2, "", at());
  later.tell({}, {RunId("r-1")}, {}, at());
  const NodeId node(std::string(32, 'a'));
  later.talk().connected(node, false, at());
  pb::GossipMessage message;
  table().for_each(
      at(), [&](const gossip::Entry& entry) { *message.add_records() = entry.record->wire; });
  later.talk().received(node, message, at());
  ASSERT_EQ(gossip::known_runs(later.talk().table(), at()).size(), 1U);
  EXPECT_TRUE(later.hear(at()));
  boot += std::chrono::seconds(11);
  later.talk().tick(at());
  EXPECT_TRUE(gossip::known_runs(later.talk().table(), at()).empty());
}

}  // namespace
}  // namespace skerry::coordinator
