// SPDX-License-Identifier: Apache-2.0
// The daemon's side of gossip: publishes what this node is and holds, and
// learns which node holds which object. It keeps the connections to other nodes
// that this takes; the host sends chunks over the same connections.
//
// ON FAILURE: a message of another node changes the table of records at most.
// THREADS: one, the loop's.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "daemon/core/core.h"
#include "gossip/gossip.h"
#include "protocol/peer_network.h"

namespace skerry::daemon {

struct PeerGossipParts {
  const protocol::Signer& identity;
  std::string coordinator_key;  // Ed25519
  pb::Certificate certificate;
  protocol::PeerLinks& network;
  std::string
      // HOST:PORT that others dial; empty: what the coordinator sees, with the
      // port that is listened at
      advertise;
  std::string host_label;
  std::vector<pb::Slot> slots;
  std::uint64_t seed = 1;
  gossip::Config pace =
      {};  // how often it talks and for how long its records live; who speaks stands above
  gossip::SignatureChecks checks = {};
};

inline constexpr std::uint64_t kOthersBytes = std::uint64_t{256} << 20;

class PeerGossip {
 public:
  // What happens on the connections to other nodes.
  struct Hooks {
    std::function<void(const NodeId&, bool dialled)> connected;
    std::function<void(const NodeId&, pb::BlobMessage)> received;
    std::function<void(const NodeId&)> gone;
    // When the last chunk moved to or from a connected node.
    std::function<Duration(const NodeId&)> moved_at;
  };
  // `saved`: what save() gave in an earlier life, or empty.
  PeerGossip(PeerGossipParts parts, const std::string& saved, Hooks hooks, Now now);

  const NodeId& coordinator() const { return verifier_.coordinator(); }
  const pb::Certificate& certificate() const { return parts_.certificate; }

  gossip::Gossip& gossip() { return gossip_; }
  // The address that the coordinator sees this node dial from.
  void seen_as(const std::string& address);

  // Handles what has arrived over the connections to nodes.
  // RETURNS: true if there may be more: call again before waiting.
  bool poll(Now now);
  // Carries out what gossip wants, except its sends.
  void carry_out(const gossip::Effects& effects, Now now);
  std::vector<int> descriptors() const { return parts_.network.descriptors(); }
  Result<void> send(const NodeId& peer, std::string_view bytes) {
    return parts_.network.send(peer, bytes);
  }
  // A peer that broke the rules of the exchange.
  void misbehaved(const NodeId& peer, const std::string& why, Now now);

  // What goes with checkpoints of these experts, so that this node's disk alone
  // is enough for a router (daemon/host/router_folder.h).
  struct Beside {
    std::vector<pb::ObjectRef>
        files;  // specification, router, statistics of these experts' partitions
    std::vector<pb::ObjectRef>
        others;  // statistics of the other partitions, at most kOthersBytes of a run
    std::set<std::string> deleted;  // runs of theirs
  };
  Beside beside(const std::set<ExpertId>& experts, Now now) const;
  // Says what this node holds: `kept`, what goes with it, and every whole
  // object, in order of importance.
  void hold(const std::vector<KeptCheckpoint>& kept, const Beside& beside,
            const std::vector<Hash>& objects, Now now);
  // Who says that it holds this, dialled where it is not connected.
  std::vector<NodeId> seek(const Hash& object, Now now);

  // True once after records came.
  bool take_news() { return std::exchange(news_, false); }
  std::string save(Now now) const { return gossip_.save(now); }
  // Where it has grown, save() is due: a start that knows less signs what peers
  // refuse.
  std::uint64_t incarnation() const { return gossip_.incarnation(); }
  const gossip::Table& table() const { return gossip_.table(); }

 private:
  void on_peer(protocol::PeerEvent event, Now now);
  void shut_out(const NodeId& peer, Duration until, const std::string& why);
  void dial(const gossip::Record& node);
  void say(const pb::RecordBody& body, Now now);
  void say_experts(const std::vector<KeptCheckpoint>& kept, Now now);
  std::string address() const;
  void note_turned_away(const protocol::PeerTurnedAway& away, Now now);

  PeerGossipParts parts_;
  Hooks hooks_;
  gossip::Verifier verifier_;
  gossip::Gossip gossip_;
  std::string seen_;  // the host that others see
  std::string said_;  // the node's fact as last said
  std::map<ExpertId, std::string>
      said_experts_;  // each expert's fact as last said; empty: in an earlier life
  bool news_ = true;
  std::uint64_t turned_away_ = 0;  // since it was last told
  Duration turned_away_told_{};
};

}  // namespace skerry::daemon
