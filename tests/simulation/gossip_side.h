// SPDX-License-Identifier: Apache-2.0
// Gossip in a simulated cluster: a daemon's real PeerGossip and the
// coordinator's real FactPublisher, on the mesh. Each belongs to one process
// and ends with it; what it saved is its host's disk's.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coordinator/host/fact_publisher.h"
#include "daemon/core/core.h"
#include "daemon/host/peer_gossip.h"
#include "tests/simulation/authority.h"
#include "tests/simulation/gossip_rules.h"
#include "tests/simulation/peer_mesh.h"
#include "tests/simulation/world.h"

namespace skerry::simulation {

// What all of them share.
struct GossipGround {
  explicit GossipGround(World& world)
      : mesh(world.timeline, world.trace, world.network, world.seed), rules(world) {}
  PeerMesh mesh;
  GossipRules rules;
  std::map<NodeId, std::string> keys;  // X25519, of every node that there was
  gossip::Config pace = simulated_pace();

  static gossip::Config simulated_pace();
};

inline constexpr char kCoordinatorAddress[] = "coordinator";

// What a process lends to its gossip.
struct GossipProcess {
  std::string name;
  std::function<Now()> now;
  // In its own time: one that is stopped does nothing.
  std::function<void(std::function<void()>)> deliver;
};

class DaemonGossip {
 public:
  struct Settings {
    Identity identity;
    pb::Certificate certificate;
    std::string host;  // label
    std::vector<pb::Slot> slots;
    bool listens = true;
    std::uint64_t seed = 1;
    std::string saved;
  };
  // `world` and `ground` outlive it.
  DaemonGossip(World& world, GossipGround& ground, GossipProcess process, Settings settings);
  ~DaemonGossip();

  // About once a second: says what changed here. What the core is to be told of
  // what became known.
  std::vector<daemon::Event> look(const daemon::Core& core,
                                  const std::map<Hash, daemon::ObjectKind>& objects);
  // Who says that it holds this and is connected; others are dialled.
  std::vector<NodeId> seek(const Hash& object);
  std::string save() const;
  std::uint64_t incarnation() const { return peer_gossip_.incarnation(); }
  void vanishes() { end_.vanishes(); }
  // As the other side of a connection that somebody else made.
  MeshEnd& end() { return end_; }
  const gossip::Table& table() const { return peer_gossip_.table(); }
  Now now() const { return process_.now(); }
  bool hears_coordinator() const { return end_.is_connected(peer_gossip_.coordinator()); }

 private:
  daemon::PeerGossip make(Settings settings);
  void poll();
  void hear(const NodeId& node, const pb::BlobMessage& message);
  void overhear(const pb::BlobMessage& message);

  World& world_;
  GossipGround& ground_;
  GossipProcess process_;
  SimulatedSigner signer_;
  MeshEnd end_;
  daemon::PeerGossip peer_gossip_;
  std::string kept_;  // as last told
  std::vector<Hash> objects_;
  unsigned looks_ = 0;
  std::vector<pb::ObjectRef> beside_;
};

class CoordinatorGossip {
 public:
  // Whether this node's key is let in.
  using Admits = std::function<bool(const NodeId&)>;
  CoordinatorGossip(World& world, GossipGround& ground, GossipProcess process, Admits admits,
                    std::uint64_t seed, const std::string& saved);
  ~CoordinatorGossip();

  // About once a second: tells what is durable by now, and lets nobody stay who
  // is let in no more. What the core is to hear of records.
  std::optional<coordinator::RecordsReceived> look(const coordinator::Core& core);
  std::string save() const;
  std::uint64_t incarnation() const { return publisher_.incarnation(); }
  // Connected nodes that say that they hold it.
  std::vector<NodeId> holders(const Hash& object);
  // A specification that it made.
  bool serves(const Hash& object) const { return publisher_.read(object, object) != nullptr; }
  const gossip::Table& table() { return publisher_.talk().table(); }
  Now now() const { return process_.now(); }

 private:
  struct Facts {
    std::uint64_t batch = 0;
    std::vector<coordinator::RunFacts> runs;
    std::set<RunId> deleted;
    std::vector<NodeId> revoked;
  };
  void poll();
  void on_peer(const protocol::PeerEvent& event);

  World& world_;
  GossipGround& ground_;
  GossipProcess process_;
  Admits admits_;
  SimulatedSigner signer_;
  MeshEnd end_;
  coordinator::FactPublisher publisher_;
  std::optional<Facts> facts_;  // wait to be durable
  std::uint64_t told_batch_ = 0;
  unsigned looks_ = 0;
  std::set<NodeId> peers_;
};

}  // namespace skerry::simulation
