// SPDX-License-Identifier: Apache-2.0
// The coordinator's blob connections: which keys may talk and read, and what
// the core hears of objects. Also checks objects on the disk.
// THREADS: one, the loop's.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/worker.h"
#include "coordinator/core/core.h"
#include "coordinator/host/fact_publisher.h"
#include "exchange/chunk_store.h"
#include "peer/peers.h"
#include "protocol/transport.h"
#include "storage/object_store.h"

namespace skerry::coordinator {

ObjectFacts object_facts(const storage::Manifest& manifest);
ObjectStored stored_event(const storage::ObjectInfo& info);
TurnedAway turned_away(const protocol::Incoming& message, std::string why, std::string detail = {});

struct BlobLimits {
  std::uint64_t incarnation = 0;  // of this process
  std::uint64_t upload = 0;       // bytes a second; 0: no limit
};

inline constexpr std::size_t kHoldersAsked = 4;

class BlobTraffic final : private peer::Owner {
 public:
  struct Hooks {
    std::function<void(const Event&)> tell;  // the core
    std::function<bool(const NodeId&, const Hash&)> may_read;
    std::function<std::optional<NodeId>(const std::string&)> node_of_key;  // X25519
    std::function<void(const Error&)> fatal;  // a failed write: the process ends
  };
  BlobTraffic(protocol::ServerTransport& transport, storage::Store& store,
              storage::ObjectStore& objects, Worker& worker, const Clock& clock,
              const BlobLimits& limits, FactPublisher& publisher, Hooks hooks);

  void incoming(const protocol::Incoming& message);
  void closed(const protocol::Connection& connection);
  void fetch(const Fetch& fetch);
  // Stops it, and removes what has come if it is not whole.
  void cancel(const Hash& object);
  void drop(const Hash& object);
  // Reads and hashes every chunk again, one job of the worker for each, so that
  // other work goes on between; tells by ObjectChecked. Several wait for each
  // other.
  void verify(const Hash& object);
  // Partly received objects that nobody fetches or names any more.
  void drop_stale(const std::vector<NamedObject>& named);
  bool is_fetching(const Hash& object) const { return peers_.is_fetching(object); }
  // Connected nodes whose records say that they hold it, at most kHoldersAsked.
  std::vector<NodeId> holders(const Hash& object) const;

  // Does what is due, and sends what waits.
  // RETURNS: the boot time of the next call at the latest.
  Duration tick();

 private:
  // peer::Owner
  Result<void> send(const NodeId& peer, std::string_view bytes) override;
  std::optional<exchange::Answer> answer(const exchange::Job& job) override;
  bool answered(const exchange::Answer& answer) override;
  void exchanged(const exchange::Effects& effects) override;
  void gossiped(const gossip::Effects& effects) override;

  // `then` follows once it is known, after ObjectDamaged where it is damaged.
  void check(const Hash& object, std::function<void()> then = {});
  void verify_next();
  // Closes the node's connection, if it has one.
  void disconnect(const NodeId& node);

  protocol::ServerTransport& transport_;
  storage::Store& store_;
  storage::ObjectStore& objects_;
  exchange::ObjectChunkStore chunk_store_;
  Worker& worker_;
  const Clock& clock_;
  Hooks hooks_;
  FactPublisher& publisher_;
  peer::Peers peers_;
  std::map<std::string, NodeId> nodes_;  // by connection
  std::map<NodeId, std::string> connections_;
  std::multiset<Hash> drops_;  // that the worker has still to do
  struct Verifying {
    ObjectChecked so_far;
    std::vector<storage::Chunk> chunks;  // none yet, where it has not begun
    std::size_t next = 0;
  };
  std::deque<Verifying> verifying_;  // the first is under way
};

}  // namespace skerry::coordinator
