// SPDX-License-Identifier: Apache-2.0
// The peers of a process over blob connections: chunks move by an exchange, and
// gossip rides on the same connections. Coordinator, daemon and command line
// each have one. The owner brings the connections and the disk, and says what
// it allows and wants.
//
// A message that does not fit into its connection waits in order; gossip does
// not wait, since a lost message costs it one round.
//
// ON FAILURE: Owner::answered() reports a failed disk, Owner::exchanged() and
// Owner::gossiped() a peer that broke the rules.
// THREADS: one, the owner's loop. Jobs run where the worker runs them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/worker.h"
#include "exchange/chunk_store.h"
#include "exchange/exchange.h"
#include "exchange/outbox.h"
#include "gossip/gossip.h"

namespace skerry::peer {

// Each call may call back into Peers.
class Owner {
 public:
  virtual ~Owner() = default;

  // Sends the bytes of a pb::BlobMessage.
  // ON FAILURE: kExhausted: the connection is full, and the message waits. Any
  // other error: the message is lost, as with its connection.
  virtual Result<void> send(const NodeId& peer, std::string_view bytes) = 0;
  // RETURNS: the answer to a job that needs no disk: an object made in memory,
  // or a refusal. None: the worker runs the job.
  virtual std::optional<exchange::Answer> answer(const exchange::Job& /*job*/) { return {}; }
  // The disk has answered a job.
  // RETURNS: false if the process must end; then the exchange gets no answer.
  virtual bool answered(const exchange::Answer& /*answer*/) { return true; }
  // What the exchange reports; its jobs and sends are carried out.
  virtual void exchanged(const exchange::Effects& effects) = 0;
  // What gossip reports; its sends are carried out. A peer whose gossip breaks
  // the protocol is among those that misbehaved.
  virtual void gossiped(const gossip::Effects& /*effects*/) {}
};

class Peers {
 public:
  // LIFETIME: all of it outlives this.
  struct Parts {
    const Clock& clock;
    Worker& worker;
    exchange::ChunkStore* chunks = nullptr;        // none: set_chunks() follows
    gossip::Gossip* gossip = nullptr;              // none: gossip is dropped
    const pb::Certificate* certificate = nullptr;  // goes with each hello
  };
  Peers(Parts parts, const exchange::Config& config, Owner& owner);
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  // A fresh connection opened, and the one that it replaces was reported as
  // disconnected. Sends the hello. `dialled`: this side dialled.
  // `gossips`: the peer is known to gossip, which starts at once. Otherwise
  // gossip starts with the peer's hello, if its version knows it.
  void connected(const NodeId& peer, bool dialled, bool gossips = false);
  void disconnected(const NodeId& peer);
  // REQUIRES: `message` was validated, except its gossip.
  void received(const NodeId& peer, pb::BlobMessage message);

  // See exchange/exchange.h.
  void fetch(const exchange::Want& want);
  void cancel(const Hash& object);
  bool is_fetching(const Hash& object) const { return exchange_.is_fetching(object); }
  void serve_only(std::vector<Hash> objects);

  // Where jobs read and write from now on; none: every job is refused.
  // LIFETIME: it outlives the jobs.
  void set_chunks(exchange::ChunkStore* chunks) { parts_.chunks = chunks; }

  // Does what is due, and sends what waits.
  void tick();
  // RETURNS: the boot time at which tick() is due at the latest.
  Duration wake_at() const;
  bool is_blocked() const { return !unsent_.is_empty(); }
  // RETURNS: the boot time of the last message of the exchange to or from a
  // connected peer, or when it connected. Gossip does not count.
  Duration moved_at(const NodeId& peer) const;

 private:
  Now now() const { return parts_.clock.now(); }
  void carry_out();
  void carry_out_gossip();
  void start_gossip(const NodeId& peer);
  void hear(const NodeId& peer, const std::string& bytes);
  void run(exchange::Job job);
  void flush();

  Parts parts_;
  Owner& owner_;
  exchange::Exchange exchange_;
  exchange::Outbox unsent_;
  std::map<NodeId, bool> ungreeted_;  // gossip has not started → this side dialled
  std::map<NodeId, Duration> moved_at_;
};

}  // namespace skerry::peer
