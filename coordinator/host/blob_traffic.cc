// SPDX-License-Identifier: Apache-2.0
#include "coordinator/host/blob_traffic.h"

#include <set>

#include "base/log.h"
#include "gossip/router_parts.h"
#include "protocol/validate.h"
#include "protocol/validate_gossip.h"

namespace skerry::coordinator {
namespace {

constexpr Duration kResend = std::chrono::milliseconds(2);
constexpr Duration kIdle = std::chrono::hours(1);

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

ObjectStored stored_event(const storage::ObjectInfo& info) {
  ObjectStored event;
  event.manifest = info.name;
  event.manifest_bytes = info.manifest_bytes;
  event.bytes = info.bytes;
  event.checkpoint = info.kind == storage::ManifestKind::kCheckpoint;
  const storage::Manifest& facts = info.facts;
  event.facts = {.name = facts.name,
                 .run = facts.run.str(),
                 .expert = facts.expert,
                 .epoch = facts.epoch.value(),
                 .attempt = facts.attempt,
                 .step = facts.step,
                 .parent = facts.parent,
                 .fingerprint = facts.fingerprint};
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
      shelf_(objects),
      worker_(worker),
      clock_(clock),
      hooks_(std::move(hooks)),
      exchange_(exchange_config(limits)),
      publisher_(publisher) {}

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
  const exchange::PeerId peer(node->str());
  const Now now = clock_.now();
  if (!peers_.contains(message.connection.id)) {
    disconnect(peer);  // its latest connection counts
    peers_[message.connection.id] = peer;
    connections_[peer] = message.connection.id;
    exchange_.connected(peer, now);
    if (parsed->has_hello() && protocol::knows_gossip(parsed->hello().version()))
      publisher_.talk().connected(*node, false, now);
  }
  if (parsed->has_gossip()) {
    hear_gossip(peer, parsed->gossip(), message);
  } else {
    exchange_.received(peer, std::move(*parsed), now);
    carry_out();
  }
  carry_out_gossip();
}

void BlobTraffic::hear_gossip(const exchange::PeerId& peer, const std::string& bytes,
                              const protocol::Incoming& message) {
  const Result<pb::GossipMessage> gossip = protocol::parse_gossip_message(bytes);
  if (gossip) return publisher_.talk().received(NodeId(peer.str()), *gossip, clock_.now());
  hooks_.tell(TurnedAway{message.public_key,
                         message.address,
                         "blob: sent what breaks the protocol",
                         gossip.error().message,
                         {}});
  disconnect(peer);
}

// Gossip bears losses: what does not fit now is not kept.
void BlobTraffic::carry_out_gossip() {
  gossip::Effects effects = publisher_.talk().take_effects();
  for (const gossip::Send& each : effects.sends) {
    const exchange::PeerId peer(each.peer.str());
    if (unsent_.has(peer)) continue;
    pb::BlobMessage message;
    message.set_gossip(each.message.SerializeAsString());
    send(peer, message.SerializeAsString());
  }
  for (const gossip::Misbehaved& each : effects.misbehaved) {
    hooks_.tell(TurnedAway{{}, {}, "blob: broke the rules of gossip", each.reason, each.peer});
    disconnect(exchange::PeerId(each.peer.str()));
  }
  for (const gossip::Report& each : effects.reports) {
    log_warning("a record is not to be believed", {{"author", each.author}, {"why", each.reason}});
  }
}

void BlobTraffic::closed(const protocol::Connection& connection) {
  const auto peer = peers_.find(connection.id);
  if (peer == peers_.end()) return;
  const exchange::PeerId id = peer->second;
  peers_.erase(peer);
  connections_.erase(id);
  unsent_.drop(id);
  exchange_.disconnected(id, clock_.now());
  publisher_.talk().disconnected(NodeId(id.str()));
  carry_out();
}

void BlobTraffic::disconnect(const exchange::PeerId& peer) {
  const auto old = connections_.find(peer);
  if (old == connections_.end()) return;
  transport_.close({protocol::Endpoint::kBlob, old->second});
  peers_.erase(old->second);
  connections_.erase(old);
  unsent_.drop(peer);
  exchange_.disconnected(peer, clock_.now());
  publisher_.talk().disconnected(NodeId(peer.str()));
}

void BlobTraffic::fetch(const Fetch& fetch) {
  exchange_.fetch({fetch.manifest, fetch.manifest_bytes, {exchange::PeerId(fetch.from.str())}, {}},
                  clock_.now());
  carry_out();
}

std::vector<NodeId> BlobTraffic::holders(const Hash& object) const {
  std::vector<NodeId> connected;
  for (const gossip::Holder& holder :
       gossip::holders_of(publisher_.talk().table(), object.raw(), clock_.now())) {
    if (connected.size() < kHoldersAsked &&
        connections_.contains(exchange::PeerId(holder.node.str())))
      connected.push_back(holder.node);
  }
  return connected;
}

void BlobTraffic::cancel(const Hash& object) {
  exchange_.cancel(object, clock_.now());
  carry_out();
  worker_.run([this, object]() -> Done {
    if (objects_.has(object)) {  // sealed just before: the core decides what becomes of it
      return [this, object] {
        if (const auto info = objects_.info(object)) hooks_.tell(stored_event(*info));
      };
    }
    const Result<void> dropped = objects_.drop(object);
    if (dropped || !store_.failed()) return {};
    return [this, error = dropped.error()] { hooks_.fatal(error); };
  });
}

void BlobTraffic::drop(const Hash& object) {
  exchange_.cancel(object, clock_.now());
  worker_.run([this, object]() -> Done {
    const Result<void> dropped = objects_.drop(object);
    if (dropped || dropped.error().code == ErrorCode::kNotFound) return {};
    return [this, error = dropped.error()] { hooks_.fatal(error); };
  });
}

void BlobTraffic::drop_stale(const std::vector<NamedObject>& named) {
  std::set<Hash> kept;
  for (const NamedObject& object : named) kept.insert(object.manifest);
  for (const storage::ObjectInfo& partial : objects_.partials()) {
    if (!kept.contains(partial.name) && !exchange_.is_fetching(partial.name)) drop(partial.name);
  }
}

Duration BlobTraffic::tick() {
  const Now now = clock_.now();
  const std::optional<Duration> due = exchange_.wake_at();
  if (due && *due <= now.boot) {
    exchange_.tick(now);
    carry_out();
  }
  publisher_.talk().tick(now);
  carry_out_gossip();
  flush();
  if (!unsent_.is_empty()) return now.boot + kResend;
  return std::min(publisher_.talk().wake_at(), exchange_.wake_at().value_or(now.boot + kIdle));
}

void BlobTraffic::carry_out() {
  exchange::Effects effects = exchange_.take_effects();
  for (exchange::Job& job : effects.jobs) run_job(std::move(job));
  for (exchange::Send& message : effects.sends)
    send(message.peer, message.message.SerializeAsString());
  for (const exchange::Misbehaved& peer : effects.misbehaved) {
    log_warning("a peer broke the rules of the exchange",
                {{"node", peer.peer}, {"object", peer.object.short_hex()}, {"why", peer.reason}});
    hooks_.tell(TurnedAway{
        {}, {}, "blob: broke the rules of the exchange", peer.reason, NodeId(peer.peer.str())});
  }
  for (const auto& [object, progress] : effects.progress)
    hooks_.tell(ObjectProgress{object, progress.bytes});
  for (const exchange::Completed& done : effects.completed) {
    const auto info = objects_.info(done.object);
    if (info) hooks_.tell(stored_event(*info));
  }
  for (const exchange::Failed& failed : effects.failed) {
    hooks_.tell(ObjectFailed{failed.object, failed.error.message, failed.may_retry});
  }
}

void BlobTraffic::run_job(exchange::Job job) {
  const auto* find = std::get_if<exchange::FindObject>(&job);
  const auto* read = std::get_if<exchange::ReadChunk>(&job);
  if (find != nullptr && publisher_.read(find->object, find->object) != nullptr) {
    exchange_.answered(exchange::ObjectFound{find->peer, find->object, {}}, clock_.now());
    return carry_out();
  }
  if (const std::string* made =
          read == nullptr ? nullptr : publisher_.read(read->object, read->chunk)) {
    exchange_.answered(
        exchange::ChunkRead{read->peer, read->request, read->object, read->chunk, *made},
        clock_.now());
    return carry_out();
  }
  const auto is_refused = [this](const auto* asked) {
    return asked != nullptr && !hooks_.may_read(NodeId(asked->peer.str()), asked->object);
  };
  if (is_refused(read) || is_refused(find)) {
    exchange_.answered(
        exchange::refuse(job, fail(ErrorCode::kUnauthorised, "not given to this node")),
        clock_.now());
    carry_out();
    return;
  }
  worker_.run([this, job = std::move(job)]() -> Done {
    auto answer = std::make_shared<exchange::Answer>(exchange::perform(shelf_, job));
    std::optional<Error> fatal;
    if (store_.failed()) {
      fatal = fail(ErrorCode::kIo, "a write to the object store failed");
      if (const auto* written = std::get_if<exchange::ChunkWritten>(answer.get());
          written && !written->outcome) {
        fatal = written->outcome.error();
      }
      if (const auto* sealed = std::get_if<exchange::ObjectSealed>(answer.get());
          sealed && !sealed->outcome) {
        fatal = sealed->outcome.error();
      }
    }
    return [this, answer, fatal] {
      if (fatal) return hooks_.fatal(*fatal);
      if (const auto* chunk = std::get_if<exchange::ChunkRead>(answer.get());
          chunk && !chunk->bytes && chunk->bytes.error().code == ErrorCode::kCorrupt) {
        log_error("a stored chunk is damaged and is not served",
                  {{"object", chunk->object.hex()},
                   {"chunk", chunk->chunk.hex()},
                   {"why", chunk->bytes.error().message}});
        check(chunk->object);
      }
      exchange_.answered(std::move(*answer), clock_.now());
      carry_out();
    };
  });
}

// Whether what was read wrongly once is wrong on the disk. If so, nothing of
// the object is served until it is mended.
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

void BlobTraffic::send(const exchange::PeerId& peer, std::string bytes) {
  const auto connection = connections_.find(peer);
  if (connection == connections_.end()) return;
  if (!unsent_.has(peer)) {
    const Result<void> sent =
        transport_.send({protocol::Endpoint::kBlob, connection->second}, bytes);
    if (sent || sent.error().code != ErrorCode::kExhausted) return;
  }
  unsent_.push(peer, std::move(bytes));
}

void BlobTraffic::flush() {
  unsent_.flush([this](const exchange::PeerId& peer, std::string_view bytes) {
    return transport_.send({protocol::Endpoint::kBlob, connections_.at(peer)}, bytes);
  });
}

}  // namespace skerry::coordinator
