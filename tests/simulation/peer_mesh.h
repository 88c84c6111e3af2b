// SPDX-License-Identifier: Apache-2.0
// The simulated connections between daemons: at most one between two keys,
// dialled by either side, under the weather of both ends. Each keeps the order
// of its messages. It loses none but gossip, if the weather says so. Either
// side may learn late that it has ended. There are no handshakes: an end knows
// at once which key the other has.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "protocol/peer_network.h"
#include "tests/simulation/dice.h"
#include "tests/simulation/network.h"
#include "tests/simulation/timeline.h"
#include "tests/simulation/trace.h"

namespace skerry::simulation {

class PeerMesh;

// One process's side of its connections; its destruction is the process's end.
class MeshEnd final : public protocol::PeerLinks {
 public:
  struct About {
    std::string address;  // as the network's weather knows it; alone among those that run
    NodeId id;            // that its key proves
    bool listens = true;  // false: behind NAT, it can only dial
    std::function<bool(const NodeId&)> admits;  // none: everybody
    std::function<Duration()> boot;             // its own steady clock
    std::function<void()> wake;                 // something waits for poll
    // Each message, just before it is handed over; none: nobody looks.
    std::function<void(const NodeId& from, const pb::BlobMessage&)> overhears;
  };
  MeshEnd(PeerMesh& mesh, About about);
  ~MeshEnd() override;
  // Nobody is told of its end.
  void vanishes() { silent_ = true; }

  const About& about() const { return about_; }
  std::size_t links() const { return links_.size(); }

  std::string listens_at() const override;
  Result<void> dial(const std::string& url, const std::string& ed25519_key) override;
  bool is_connected(const NodeId& peer) const override { return links_.contains(peer); }
  Result<void> send(const NodeId& peer, std::string_view bytes) override;
  void close(const NodeId& peer) override;
  void shut_out(const NodeId& peer, const std::string& x25519_key, Duration until) override;
  bool poll(const Handler& handle) override;
  std::vector<int> descriptors() const override { return {}; }

 private:
  friend class PeerMesh;
  void opened(const NodeId& peer, std::uint64_t link, bool dialled);
  void ended(const NodeId& peer, std::uint64_t link);
  void tell(protocol::PeerEvent event);

  PeerMesh& mesh_;
  About about_;
  std::uint64_t number_ = 0;
  bool silent_ = false;
  std::map<NodeId, std::uint64_t> links_;
  std::map<NodeId, Duration> shut_out_;  // until when
  std::deque<protocol::PeerEvent> events_;
};

class PeerMesh {
 public:
  PeerMesh(Timeline& timeline, Trace& trace, Network& network, std::uint64_t seed)
      : timeline_(timeline), trace_(trace), network_(network), dice_(seed, "mesh") {}

  // Connects them now, even if neither could dial the other. False: the other
  // does not run, is cut off, or refuses it.
  bool connect(MeshEnd& from, const std::string& address);
  // Every connection of this address breaks: both sides learn it, each in its
  // own time.
  void reset(const std::string& address);

 private:
  friend class MeshEnd;
  struct Side {
    MeshEnd* end = nullptr;  // null: it knows of the connection's end
    std::string address;
    NodeId id;
    Duration last{};  // when the latest message to it is due
  };
  struct Link {
    Side sides[2];  // the dialler first
    bool is_watched = false;
    bool has_lost = false;  // something other than gossip: it ends
  };

  std::uint64_t add(MeshEnd& end);
  void remove(MeshEnd& end);
  void dial(const MeshEnd& from, const std::string& address, const NodeId& id);
  void send(std::uint64_t link, const MeshEnd& from, std::string bytes);
  void deliver(std::uint64_t link, int to, const std::string& bytes);
  // That side knows it already, or learns it now; the other in its own time.
  void end_at(std::uint64_t link, int side, bool silent);
  void learn(std::uint64_t link, int side);
  void learn_later(std::uint64_t link, int side, Duration delay);
  void watch(std::uint64_t link);
  bool is_cut(const std::string& from, const std::string& to);
  Duration delay(const std::string& from, const std::string& to);
  Duration delay(const Weather& one, const Weather& other);

  Timeline& timeline_;
  Trace& trace_;
  Network& network_;
  Dice dice_;
  std::uint64_t next_number_ = 1;
  std::map<std::string, MeshEnd*> ends_;
  std::map<std::uint64_t, Link> links_;
};

}  // namespace skerry::simulation
