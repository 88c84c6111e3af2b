// SPDX-License-Identifier: Apache-2.0
// Host: other nodes.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "daemon/host/host.h"

namespace skerry::daemon {
namespace {

constexpr Duration kKeepEvery = std::chrono::seconds(30);

pb::PeerFault fault_of(const NodeId& peer, const Hash& object, pb::PeerFault::Kind kind) {
  pb::PeerFault fault;
  fault.set_peer(peer.str());
  fault.set_manifest(object.raw());
  fault.set_kind(kind);
  return fault;
}

pb::Transfer transfer_of(const exchange::Completed& completed) {
  const exchange::TransferStats& stats = completed.stats;
  pb::Transfer transfer;
  if (stats.bytes == 0) return transfer;  // it was here
  transfer.set_manifest(completed.object.raw());
  transfer.set_bytes(stats.bytes);
  transfer.set_millis(static_cast<std::uint64_t>(stats.took / std::chrono::milliseconds(1)));
  std::vector<std::pair<std::uint64_t, NodeId>> largest;
  for (const auto& [peer, bytes] : stats.from) largest.emplace_back(bytes, peer);
  std::ranges::sort(largest, std::greater());
  if (largest.size() > protocol::kTransferSources) largest.resize(protocol::kTransferSources);
  for (const auto& [bytes, peer] : largest) {
    pb::TransferSource& source = *transfer.add_sources();
    source.set_peer(peer.str());
    source.set_bytes(bytes);
  }
  return transfer;
}

}  // namespace

void Host::make_peer_gossip(const std::string& records) {
  const PeerParts& peers = *parts_.peers;
  PeerGossipParts parts{.identity = peers.identity,
                        .coordinator_key = peers.coordinator_key,
                        .certificate = peers.certificate,
                        .network = peers.network,
                        .advertise = options_.peer_advertise,
                        .host_label = options_.host_label,
                        .slots = {},
                        .seed = options_.incarnation,
                        .pace = peers.pace,
                        .checks = peers.checks};
  for (const DeviceSlot& slot : options_.slots) parts.slots.push_back(slot.description);
  PeerGossip::Hooks hooks{
      .connected = [this](const NodeId& node,
                          bool dialled) { peers_->connected(node, dialled, true); },
      .received = [this](const NodeId& node,
                         pb::BlobMessage message) { peers_->received(node, std::move(message)); },
      .gone = [this](const NodeId& node) { peers_->disconnected(node); },
      .moved_at = [this](const NodeId& node) { return peers_->moved_at(node); }};
  peer_gossip_ =
      std::make_unique<PeerGossip>(std::move(parts), records, std::move(hooks), parts_.clock.now());
  coordinator_ = peer_gossip_->coordinator();
  next_keeping_ = parts_.clock.now().boot + kKeepEvery;
}

bool Host::poll_peers() { return peer_gossip_ && peer_gossip_->poll(parts_.clock.now()); }

void Host::look_around() {
  const Now now = parts_.clock.now();
  if (now.boot < next_look_) return;
  next_look_ = now.boot + parts_.peers->look_every;
  const bool news = peer_gossip_->take_news();
  if (news) {
    for (const auto& [object, order] : wanted_) peer_gossip_->seek(object, now);
    records_changed_ = true;
  }
  std::string kept;
  for (const KeptCheckpoint& each : core_.kept()) kept += each.object.manifest();
  const bool kept_changed = std::exchange(kept_, kept) != kept;
  if (std::exchange(objects_changed_, false) || kept_changed || news) {
    std::vector<Hash> whole;
    std::set<ExpertId> experts;  // of which a checkpoint is here, kept or as a copy
    parts_.objects.each([&](const storage::ObjectInfo& object) {
      whole.push_back(object.name);
      if (object.kind == storage::ManifestKind::kCheckpoint)
        experts.insert({object.facts.run, object.facts.expert});
    });
    for (const KeptCheckpoint& each : core_.kept()) experts.insert(each.expert);
    const std::vector<KeptCheckpoint> newest_first(core_.kept().rbegin(), core_.kept().rend());
    PeerGossip::Beside beside = peer_gossip_->beside(experts, now);
    peer_gossip_->hold(newest_first, beside, whole, now);
    for (const std::string& run : beside.deleted) push(RunGone{run});
    std::ranges::move(beside.others, std::back_inserter(beside.files));
    const auto same = [](const pb::ObjectRef& a, const pb::ObjectRef& b) {
      return a.manifest() == b.manifest();
    };
    if (!std::ranges::equal(beside.files, beside_, same)) {
      beside_ = beside.files;
      push(HoldFiles{std::move(beside.files)});
    }
    events_.drain();
  }
  const bool is_due = records_changed_ && now.boot >= next_keeping_;
  if (is_due || peer_gossip_->incarnation() != kept_incarnation_) keep_records();
}

void Host::keep_records() {
  const Now now = parts_.clock.now();
  next_keeping_ = now.boot + kKeepEvery;
  records_changed_ = false;
  kept_incarnation_ = peer_gossip_->incarnation();
  parts_.disk.run([this, records = peer_gossip_->save(now)]() -> Done {
    const Result<void> kept = parts_.store.write({{gossip::kTableKey, records}});
    if (kept) return {};
    return [this, error = kept.error()] { check_disk(error); };
  });
}

// ---- peer::Owner ----

Result<void> Host::send(const NodeId& peer, std::string_view bytes) {
  if (is_coordinator(peer)) return parts_.transport.send(protocol::Endpoint::kBlob, bytes);
  return peer_gossip_->send(peer, bytes);
}

bool Host::answered(const exchange::Answer& answer) {
  if (parts_.store.failed()) {
    fatal("the disk failed while chunks were written");
    return false;
  }
  const auto* read = std::get_if<exchange::ChunkRead>(&answer);
  if (read == nullptr || read->bytes || wanted_.contains(read->object)) return true;
  // To the peer the chunk is merely not here; the core must know that what it
  // committed is damaged.
  const ErrorCode code = read->bytes.error().code;
  if (code == ErrorCode::kCorrupt || code == ErrorCode::kNotFound) {
    objects_changed_ = true;
    push(ObjectFailed{read->object, read->bytes.error()});
  }
  return true;
}

void Host::exchanged(const exchange::Effects& effects) {
  for (const auto& [object, progress] : effects.progress) {
    push(ObjectProgress{object, progress.bytes, progress.total_bytes});
  }
  for (const exchange::Completed& completed : effects.completed) {
    verified_.insert(completed.object);
    wanted_.erase(completed.object);
    objects_changed_ = true;
    push(ObjectStored{completed.object, transfer_of(completed), facts_of(completed.object)});
  }
  for (const exchange::Failed& failed : effects.failed) {
    wanted_.erase(failed.object);
    push(ObjectFailed{failed.object, failed.error});
  }
  for (const exchange::Stalled& peer : effects.stalled)
    push(PeerFaulted{fault_of(peer.peer, peer.object, pb::PeerFault::FAULT_NO_ANSWER)});
  for (const exchange::Misbehaved& peer : effects.misbehaved) {
    if (!peer.object.is_zero())
      push(PeerFaulted{fault_of(peer.peer, peer.object, pb::PeerFault::FAULT_WRONG_BYTES)});
    if (is_coordinator(peer.peer)) {
      log_warning("the coordinator sent wrong bytes: " + peer.reason);
    } else if (peer_gossip_) {
      peer_gossip_->misbehaved(peer.peer, peer.reason, parts_.clock.now());
    }
  }
}

void Host::gossiped(const gossip::Effects& effects) {
  peer_gossip_->carry_out(effects, parts_.clock.now());
}

}  // namespace skerry::daemon
