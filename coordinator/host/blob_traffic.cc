// SPDX-License-Identifier: Apache-2.0
#include "coordinator/host/blob_traffic.h"

#include <set>

#include "base/log.h"
#include "gossip/router_parts.h"
#include "protocol/validate.h"

namespace skerry::coordinator {
namespace {

// Small, since a coordinator runs on the cheapest machine: at most 16 MiB
// wanted and 16 MiB served at once.
exchange::Config exchange_config(const BlobLimits& limits) {
  exchange::Config config;
  config.incarnation = limits.incarnation;
  config.upload_limit = limits.upload;
  config.window_per_peer = 4;
  config.window_bytes = 16 << 20;
  config.serve_reads = 4;
  return config;
}

}  // namespace

ObjectFacts object_facts(const storage::Manifest& manifest) {
  return {.name = manifest.name,
          .run = manifest.run,
          .expert = manifest.expert,
          .epoch = manifest.epoch,
          .attempt = manifest.attempt,
          .step = manifest.step,
          .parent = manifest.parent,
          .fingerprint = manifest.fingerprint};
}

ObjectStored stored_event(const storage::ObjectInfo& info) {
  ObjectStored event;
  event.manifest = info.name;
  event.manifest_bytes = info.manifest_bytes;
  event.bytes = info.bytes;
  event.checkpoint = info.kind == storage::ManifestKind::kCheckpoint;
  event.facts = object_facts(info.facts);
  return event;
}

TurnedAway turned_away(const protocol::Incoming& message, std::string why, std::string detail) {
  return {message.public_key, message.address, std::move(why), std::move(detail), {}};
}

BlobTraffic::BlobTraffic(protocol::ServerTransport& transport, storage::Store& store,
                         storage::ObjectStore& objects, Worker& worker, const Clock& clock,
                         const BlobLimits& limits, FactPublisher& publisher, Hooks hooks)
    : transport_(transport),
      store_(store),
      objects_(objects),
      chunk_store_(objects),
      worker_(worker),
      clock_(clock),
      hooks_(std::move(hooks)),
      publisher_(publisher),
      peers_(
          {.clock = clock, .worker = worker, .chunks = &chunk_store_, .gossip = &publisher.talk()},
          exchange_config(limits), *this) {}

void BlobTraffic::incoming(const protocol::Incoming& message) {
  const std::optional<NodeId> node = hooks_.node_of_key(message.public_key);
  Result<pb::BlobMessage> parsed = protocol::parse_blob_message(message.bytes);
  if (!node || !parsed) {
    if (!parsed)
      hooks_.tell(
          turned_away(message, "blob: sent what breaks the protocol", parsed.error().message));
    transport_.close(message.connection);
    return;
  }
  if (!nodes_.contains(message.connection.id)) {
    disconnect(*node);  // its latest connection counts
    nodes_[message.connection.id] = *node;
    connections_[*node] = message.connection.id;
    peers_.connected(*node, false);
  }
  peers_.received(*node, std::move(*parsed));
}

void BlobTraffic::closed(const protocol::Connection& connection) {
  const auto node = nodes_.find(connection.id);
  if (node == nodes_.end()) return;
  const NodeId id = node->second;
  nodes_.erase(node);
  connections_.erase(id);
  peers_.disconnected(id);
}

void BlobTraffic::disconnect(const NodeId& node) {
  const auto old = connections_.find(node);
  if (old == connections_.end()) return;
  const protocol::Connection connection{protocol::Endpoint::kBlob, old->second};
  transport_.close(connection);
  closed(connection);
}

void BlobTraffic::fetch(const Fetch& fetch) {
  peers_.fetch({fetch.manifest, fetch.manifest_bytes, {fetch.from}, {}});
}

std::vector<NodeId> BlobTraffic::holders(const Hash& object) const {
  std::vector<NodeId> connected;
  for (const gossip::Holder& holder :
       gossip::holders_of(publisher_.table(), object.raw(), clock_.now())) {
    if (connected.size() < kHoldersAsked && connections_.contains(holder.node))
      connected.push_back(holder.node);
  }
  return connected;
}

void BlobTraffic::cancel(const Hash& object) {
  peers_.cancel(object);
  worker_.run([this, object]() -> Done {
    if (objects_.has(object)) {  // sealed just before: the core decides what becomes of it
      return [this, object] {
        if (drops_.contains(object)) return;  // it did
        if (const auto info = objects_.info(object)) hooks_.tell(stored_event(*info));
      };
    }
    const Result<void> dropped = objects_.drop(object);
    if (dropped || !store_.failed()) return {};
    return [this, error = dropped.error()] { hooks_.fatal(error); };
  });
}

void BlobTraffic::drop(const Hash& object) {
  peers_.cancel(object);
  drops_.insert(object);
  worker_.run([this, object]() -> Done {
    const Result<void> dropped = objects_.drop(object);
    return [this, object, dropped] {
      drops_.erase(drops_.find(object));
      if (!dropped && dropped.error().code != ErrorCode::kNotFound) hooks_.fatal(dropped.error());
    };
  });
}

void BlobTraffic::drop_stale(const std::vector<NamedObject>& named) {
  std::set<Hash> kept;
  for (const NamedObject& object : named) kept.insert(object.manifest);
  for (const storage::ObjectInfo& partial : objects_.partials()) {
    if (!kept.contains(partial.name) && !is_fetching(partial.name)) drop(partial.name);
  }
}

Duration BlobTraffic::tick() {
  peers_.tick();
  return peers_.wake_at();
}

// ---- peer::Owner ----

Result<void> BlobTraffic::send(const NodeId& peer, std::string_view bytes) {
  const auto connection = connections_.find(peer);
  if (connection == connections_.end()) return {};
  return transport_.send({protocol::Endpoint::kBlob, connection->second}, bytes);
}

std::optional<exchange::Answer> BlobTraffic::answer(const exchange::Job& job) {
  const auto allows = [this, &job](const auto& asked) -> std::optional<exchange::Answer> {
    if (hooks_.may_read(asked.peer, asked.object)) return std::nullopt;
    return exchange::refuse(job, fail(ErrorCode::kUnauthorised, "not given to this node"));
  };
  if (const auto* find = std::get_if<exchange::FindObject>(&job)) {
    if (publisher_.read(find->object, find->object) == nullptr) return allows(*find);
    return exchange::ObjectFound{find->peer, find->object, {}};
  }
  if (const auto* read = std::get_if<exchange::ReadChunk>(&job)) {
    const std::string* made = publisher_.read(read->object, read->chunk);
    if (made == nullptr) return allows(*read);
    return exchange::ChunkRead{read->peer, read->request, read->object, read->chunk, *made};
  }
  return std::nullopt;
}

bool BlobTraffic::answered(const exchange::Answer& answer) {
  if (store_.failed()) {
    Error why = fail(ErrorCode::kIo, "a write to the object store failed");
    const auto* written = std::get_if<exchange::ChunkWritten>(&answer);
    const auto* sealed = std::get_if<exchange::ObjectSealed>(&answer);
    if (written != nullptr && !written->outcome) why = written->outcome.error();
    if (sealed != nullptr && !sealed->outcome) why = sealed->outcome.error();
    hooks_.fatal(why);
    return false;
  }
  const auto* read = std::get_if<exchange::ChunkRead>(&answer);
  if (read != nullptr && !read->bytes && read->bytes.error().code == ErrorCode::kCorrupt) {
    log_error("a stored chunk is damaged and is not served",
              {{"object", read->object.hex()},
               {"chunk", read->chunk.hex()},
               {"why", read->bytes.error().message}});
    check(read->object);
  }
  return true;
}

void BlobTraffic::exchanged(const exchange::Effects& effects) {
  for (const exchange::Misbehaved& peer : effects.misbehaved) {
    log_warning("a peer broke the rules of the exchange",
                {{"node", peer.peer}, {"object", peer.object.short_hex()}, {"why", peer.reason}});
    hooks_.tell(
        TurnedAway{{}, {}, "blob: broke the rules of the exchange", peer.reason, peer.peer});
  }
  for (const auto& [object, progress] : effects.progress)
    hooks_.tell(ObjectProgress{object, progress.bytes});
  for (const exchange::Completed& done : effects.completed) {
    const auto info = objects_.info(done.object);
    if (info) hooks_.tell(stored_event(*info));
  }
  for (const exchange::Failed& failed : effects.failed)
    hooks_.tell(ObjectFailed{failed.object, failed.error.message, failed.may_retry});
}

void BlobTraffic::gossiped(const gossip::Effects& effects) {
  for (const gossip::Misbehaved& each : effects.misbehaved) {
    hooks_.tell(TurnedAway{{}, {}, "blob: broke the rules of gossip", each.reason, each.peer});
    disconnect(each.peer);
  }
  for (const gossip::Report& each : effects.reports) {
    log_warning("a record is not to be believed", {{"author", each.author}, {"why", each.reason}});
  }
}

// ---- Checks of the disk ----

// Whether what was read wrongly once is wrong on the disk. If so, nothing of
// the object is served until it is repaired.
void BlobTraffic::check(const Hash& object, std::function<void()> then) {
  worker_.run([this, object, then = std::move(then)]() -> Done {
    const Result<bool> whole = objects_.verify(object);
    if (!whole && store_.failed()) return [this, error = whole.error()] { hooks_.fatal(error); };
    const bool damaged = whole ? !*whole : whole.error().code == ErrorCode::kCorrupt;
    return [this, object, damaged, then] {
      if (damaged) hooks_.tell(ObjectDamaged{object});
      if (then) then();
    };
  });
}

void BlobTraffic::verify(const Hash& object) {
  verifying_.push_back({.so_far = {.manifest = object}});
  if (verifying_.size() == 1) verify_next();
}

// The manifest, then a chunk at a time. What was read wrongly is asked of
// check(), which decides.
void BlobTraffic::verify_next() {
  if (verifying_.empty()) return;
  Verifying& first = verifying_.front();
  const Hash object = first.so_far.manifest;
  const auto finish = [this] {
    verifying_.front().so_far.done = true;
    hooks_.tell(verifying_.front().so_far);
    verifying_.pop_front();
    verify_next();
  };
  if (first.chunks.empty()) {
    worker_.run([this, object, finish]() -> Done {
      auto named = std::make_shared<Result<storage::NamedManifest>>(objects_.manifest(object));
      return [this, object, finish, named] {
        if (!*named) return check(object, finish);
        verifying_.front().chunks = storage::distinct_chunks((*named)->manifest);
        if (verifying_.front().chunks.empty()) return finish();
        verify_next();
      };
    });
    return;
  }
  if (first.next == first.chunks.size())
    return first.so_far.damaged.empty() ? finish() : check(object, finish);
  const storage::Chunk chunk = first.chunks[first.next++];
  worker_.run([this, object, chunk]() -> Done {
    const bool whole = objects_.read(object, chunk.hash).has_value();
    return [this, chunk, whole] {
      ObjectChecked& so_far = verifying_.front().so_far;
      so_far.bytes += chunk.bytes;
      ++so_far.chunks;
      if (!whole) so_far.damaged.push_back(chunk.hash);
      hooks_.tell(so_far);
      verify_next();
    };
  });
}

}  // namespace skerry::coordinator
