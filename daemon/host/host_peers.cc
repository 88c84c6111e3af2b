// SPDX-License-Identifier: Apache-2.0
// Host: other nodes.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "daemon/host/host.h"

namespace skerry::daemon {
namespace {

constexpr Duration kKeepEvery = std::chrono::seconds(30);

exchange::PeerId peer_of(const NodeId& node) { return exchange::PeerId(node.str()); }

}  // namespace

void Host::make_neighbours(const std::string& records) {
  const PeerParts& peers = *parts_.peers;
  NeighboursParts parts{.identity = peers.identity,
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
  Neighbours::Hooks hooks{// Its hello goes before anything else.
                          .connected =
                              [this](const NodeId& node) {
                                exchange_.connected(peer_of(node), parts_.clock.now());
                                carry_out_exchange();
                              },
                          .received =
                              [this](const NodeId& node, pb::BlobMessage message) {
                                const Now now = parts_.clock.now();
                                neighbours_->chunk_moved(node, now);
                                exchange_.received(peer_of(node), std::move(message), now);
                              },
                          .gone = [this](const NodeId& node) { gone(peer_of(node)); },
                          // Behind chunks it would come late: it bears being
                          // lost better.
                          .send_gossip =
                              [this](const NodeId& node, std::string bytes) {
                                const exchange::PeerId peer = peer_of(node);
                                if (blobs_.has(peer)) return;
                                [[maybe_unused]] const Result<void> sent =
                                    is_coordinator(peer)
                                        ? parts_.transport.send(protocol::Endpoint::kBlob, bytes)
                                        : neighbours_->send(node, bytes);
                              }};
  neighbours_ =
      std::make_unique<Neighbours>(std::move(parts), records, std::move(hooks), parts_.clock.now());
  coordinator_ = peer_of(neighbours_->coordinator());
  next_keeping_ = parts_.clock.now().boot + kKeepEvery;
}

bool Host::poll_peers() {
  if (!neighbours_) return false;
  const bool busy = neighbours_->poll(parts_.clock.now());
  if (busy) carry_out_exchange();
  return busy;
}

void Host::look_around() {
  const Now now = parts_.clock.now();
  if (now.boot < next_look_) return;
  next_look_ = now.boot + parts_.peers->look_every;
  const bool news = neighbours_->take_news();
  if (news) {
    for (const auto& [object, order] : wanted_) neighbours_->seek(object, now);
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
    Neighbours::Beside beside = neighbours_->beside(experts, now);
    neighbours_->hold(newest_first, beside, whole, now);
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
  if (is_due || neighbours_->incarnation() != kept_incarnation_) keep_records();
}

void Host::keep_records() {
  const Now now = parts_.clock.now();
  next_keeping_ = now.boot + kKeepEvery;
  records_changed_ = false;
  kept_incarnation_ = neighbours_->incarnation();
  parts_.disk.run([this, records = neighbours_->save(now)]() -> Done {
    const Result<void> kept = parts_.store.write({{gossip::kTableKey, records}});
    if (kept) return {};
    return [this, error = kept.error()] { check_disk(error); };
  });
}

}  // namespace skerry::daemon
