// SPDX-License-Identifier: Apache-2.0
// Daemons that gossip over the network in memory.
#include "daemon/host/peer_gossip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/core/objects.h"
#include "gossip/router_parts.h"
#include "gossip/testing/testing.h"
#include "peer/peers.h"
#include "protocol/testing/fake_transport.h"
#include "protocol/validate.h"

namespace skerry::daemon {
namespace {

using gossip::Author;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct FakeClock final : Clock {
  Now now() const override { return gossip::at(boot); }
  Duration boot = std::chrono::seconds(100);
};

Hash hash_of(const std::string& what) { return blake2b(what); }

KeptCheckpoint kept(Step step, const std::string& checkpoint) {
  KeptCheckpoint each{{RunId("r-1"), 0}, Epoch(1, 1), step, {}, 0.5};
  gossip::name_object(each.object, checkpoint);
  return each;
}

std::vector<std::string> names(const std::vector<pb::ObjectRef>& objects) {
  std::vector<std::string> names;
  for (const pb::ObjectRef& object : objects) names.push_back(object.manifest());
  return names;
}

struct Node final : peer::Owner {
  Node(protocol::FakeNetwork& wires, const Clock& its_clock, std::uint64_t number,
       bool listens = true)
      : author(number),
        clock(its_clock),
        network({.self = author.id(),
                 .coordinator_key = gossip::the_coordinator().ed25519_key(),
                 .server = listens ? wires.make_server(author.identity) : nullptr,
                 .make_client = [this, &wires](const std::string&, const std::string& key)
                     -> Result<std::unique_ptr<protocol::ClientTransport>> {
                   return wires.make_client(author.identity, key);
                 }},
                clock),
        peer_gossip({.identity = author.identity,
                     .coordinator_key = gossip::the_coordinator().ed25519_key(),
                     .certificate = author.certificate,
                     .network = network,
                     .advertise = {},
                     .host_label = "host",
                     .slots = {},
                     .seed = number},
                    "",
                    {.connected = [this](const NodeId& peer,
                                         bool dialled) { peers.connected(peer, dialled); },
                     .received =
                         [this](const NodeId& peer, pb::BlobMessage message) {
                           peers.received(peer, std::move(message));
                         },
                     .gone =
                         [this](const NodeId& peer) {
                           ++gone;
                           peers.disconnected(peer);
                         },
                     .moved_at = [this](const NodeId& peer) { return peers.moved_at(peer); }},
                    clock.now()),
        peers({.clock = clock,
               .worker = worker,
               .gossip = &peer_gossip.gossip(),
               .certificate = &author.certificate},
              {}, *this) {}

  Result<void> send(const NodeId& peer, std::string_view bytes) override {
    return network.send(peer, bytes);
  }
  void exchanged(const exchange::Effects& /*effects*/) override {}
  void gossiped(const gossip::Effects& effects) override {
    peer_gossip.carry_out(effects, clock.now());
  }

  // As over its connection to the coordinator.
  void told(const pb::SignedRecord& record) {
    pb::GossipMessage message;
    *message.add_records() = record;
    peer_gossip.gossip().connected(peer_gossip.coordinator(), true, clock.now());
    peer_gossip.gossip().received(peer_gossip.coordinator(), message, clock.now());
  }

  Author author;
  const Clock& clock;
  protocol::PeerNetwork network;
  int gone = 0;
  PeerGossip peer_gossip;
  ManualWorker worker;
  peer::Peers peers;
};

class PeerGossipTest : public ::testing::Test {
 protected:
  void pass(Duration time) {
    for (const Duration until = clock.boot + time; clock.boot < until;) {
      clock.boot += std::chrono::milliseconds(100);
      wires.advance(std::chrono::milliseconds(100));
      for (Node* node : {&a, &b, &behind}) {
        node->peer_gossip.poll(clock.now());
        node->peers.tick();
      }
    }
  }
  pb::SignedRecord by_coordinator(const pb::RecordBody& body) {
    return coordinator.sign(body, ++counter, clock.now());
  }

  FakeClock clock;
  protocol::FakeNetwork wires{1};
  const Author coordinator{0};
  std::uint64_t counter = 0;
  Node a{wires, clock, 1};
  Node b{wires, clock, 2};
  Node behind{wires, clock, 3, false};
};

TEST_F(PeerGossipTest, WhatOneHoldsTheOthersFind) {
  behind.peer_gossip.hold({}, {}, {hash_of("shard")}, clock.now());
  a.peer_gossip.hold({}, {}, {hash_of("shard")}, clock.now());
  // Each meets b, and so everyone hears of everyone who can be dialled.
  ASSERT_TRUE(a.network.dial("tcp://fake:4", b.author.identity.ed25519_key()));
  ASSERT_TRUE(behind.network.dial("tcp://fake:4", b.author.identity.ed25519_key()));
  pass(std::chrono::seconds(30));
  EXPECT_THAT(b.peer_gossip.seek(hash_of("shard"), clock.now()),
              ::testing::UnorderedElementsAre(a.author.id(), behind.author.id()));
  EXPECT_THAT(b.peer_gossip.seek(hash_of("another"), clock.now()), IsEmpty());
  EXPECT_THAT(behind.peer_gossip.seek(hash_of("shard"), clock.now()), ElementsAre(a.author.id()));
  pass(std::chrono::seconds(1));
  EXPECT_TRUE(behind.network.is_connected(a.author.id()));
}

TEST_F(PeerGossipTest, WhatGoesWithACheckpointFollowsFromTheCoordinatorsRecords) {
  const std::vector<KeptCheckpoint> own = {kept(60, "checkpoint")};
  const std::set<ExpertId> experts = {own[0].expert};
  EXPECT_THAT(a.peer_gossip.beside(experts, clock.now()).files, IsEmpty());
  a.told(by_coordinator(gossip::run_fact("r-1", 1)));
  a.told(by_coordinator(gossip::expert_fact("r-1", 0, 60, "checkpoint")));
  const PeerGossip::Beside beside = a.peer_gossip.beside(experts, clock.now());
  EXPECT_THAT(names(beside.files), ElementsAre(gossip::hash_of("spec"), gossip::hash_of("router"),
                                               gossip::hash_of("statistics 0")));
  EXPECT_THAT(beside.others, IsEmpty());

  // All of it is here: this node's records alone are enough for a reader.
  a.peer_gossip.hold(
      own, beside,
      {hash_of("checkpoint"), hash_of("spec"), hash_of("router"), hash_of("statistics 0")},
      clock.now());
  ASSERT_TRUE(b.network.dial("tcp://fake:4", a.author.identity.ed25519_key()));
  pass(std::chrono::seconds(30));
  const auto parts = gossip::router_parts(b.peer_gossip.table(), RunId("r-1"), clock.now());
  ASSERT_TRUE(parts) << parts.error().message;
  EXPECT_THAT(parts->missing, IsEmpty());

  a.told(by_coordinator(gossip::withdrawn(gossip::run_fact("r-1", 1))));
  EXPECT_THAT(a.peer_gossip.beside(experts, clock.now()).deleted, ElementsAre("r-1"));
}

// So that its disk alone is enough for the router; but what many others have as
// well is said last.
TEST_F(PeerGossipTest, TheStatisticsOfOtherPartitionsComeAlong) {
  pb::RecordBody large = gossip::expert_fact("r-1", 2, 60, "third");
  large.mutable_expert()->mutable_statistics()->set_bytes(kOthersBytes);
  a.told(by_coordinator(gossip::run_fact("r-1", 3)));
  a.told(by_coordinator(gossip::expert_fact("r-1", 0, 60, "first")));
  a.told(by_coordinator(gossip::expert_fact("r-1", 1, 60, "second")));
  a.told(by_coordinator(large));
  const PeerGossip::Beside beside = a.peer_gossip.beside({{RunId("r-1"), 1}}, clock.now());
  EXPECT_THAT(names(beside.files), ElementsAre(gossip::hash_of("spec"), gossip::hash_of("router"),
                                               gossip::hash_of("statistics 1")));
  EXPECT_THAT(names(beside.others), ElementsAre(gossip::hash_of("statistics 0")))
      << "the third is too large";

  std::vector<Hash> whole = {hash_of("statistics 0")};
  for (std::size_t i = 0; i < protocol::kRecordHolds; ++i)
    whole.push_back(hash_of(text("shard ", i)));
  a.peer_gossip.hold({}, beside, whole, clock.now());
  pass(std::chrono::seconds(11));
  const auto held = [&](const std::string& what) {
    return !gossip::holders_of(a.peer_gossip.table(), gossip::hash_of(what), clock.now()).empty();
  };
  EXPECT_TRUE(held(text("shard ", protocol::kRecordHolds - 1)));
  EXPECT_FALSE(held("statistics 0"));
}

TEST_F(PeerGossipTest, ARevokedNodeIsCutOffAndStaysOut) {
  ASSERT_TRUE(b.network.dial("tcp://fake:4", a.author.identity.ed25519_key()));
  pass(std::chrono::seconds(1));
  ASSERT_TRUE(a.network.is_connected(b.author.id()));
  a.told(by_coordinator(gossip::revocation_fact(b.author.id())));
  pass(std::chrono::seconds(1));
  EXPECT_FALSE(a.network.is_connected(b.author.id()));
  EXPECT_EQ(a.gone, 1);
  clock.boot += std::chrono::minutes(20);  // longer than for any other reason
  ASSERT_TRUE(b.network.dial("tcp://fake:4", a.author.identity.ed25519_key()));
  pass(std::chrono::seconds(5));
  EXPECT_FALSE(a.network.is_connected(b.author.id()));
}

}  // namespace
}  // namespace skerry::daemon
