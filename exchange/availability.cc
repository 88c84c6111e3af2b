// SPDX-License-Identifier: Apache-2.0
#include "exchange/availability.h"

#include "protocol/limits.h"

namespace skerry::exchange {

// A peer that asks for more at once asks again for what was dropped.
constexpr std::size_t kMostFinding = 64;

void Availability::find(const PeerId& peer, const Hash& object) {
  std::size_t& finding = finding_[peer];
  if (finding >= kMostFinding) return;
  ++finding;
  effects_.jobs.emplace_back(FindObject{peer, object});
}

void Availability::found(const ObjectFound& answer, const ChunkSet* held) {
  const auto asker = finding_.find(answer.peer);
  if (asker == finding_.end()) return;
  if (--asker->second == 0) finding_.erase(asker);
  if (held != nullptr) return tell(answer.peer, answer.object, *held);
  add_map(answer.peer, answer.object).set_whole(answer.outcome.has_value());
}

void Availability::tell(const PeerId& peer, const Hash& object, const ChunkSet& held) {
  audiences_[object].peers.insert(peer);
  pb::ChunkMap& map = add_map(peer, object);
  map.set_receiving(true);
  map.set_bits(held.bits());
}

void Availability::gained(const Hash& object, ChunkIndex chunk, Now now) {
  const auto audience = audiences_.find(object);
  if (audience == audiences_.end()) return;
  audience->second.news.push_back(chunk);
  const bool is_full = audience->second.news.size() >= protocol::kMapAdded;
  if (is_full || audience->second.told + config_.map_interval <= now.boot) {
    spread(object, audience->second, now);
  }
}

void Availability::spread(const Hash& object, Audience& audience, Now now) {
  for (const PeerId& peer : audience.peers) {
    pb::ChunkMap& map = add_map(peer, object);
    map.set_receiving(true);
    map.mutable_added()->Add(audience.news.begin(), audience.news.end());
  }
  audience.news.clear();
  audience.told = now.boot;
}

void Availability::ended(const Hash& object, const ChunkSet& held) {
  const auto audience = audiences_.find(object);
  if (audience == audiences_.end()) return;
  for (const PeerId& peer : audience->second.peers) add_map(peer, object).set_bits(held.bits());
  audiences_.erase(audience);
}

void Availability::disconnected(const PeerId& peer) {
  finding_.erase(peer);
  for (auto at = audiences_.begin(); at != audiences_.end();) {
    at->second.peers.erase(peer);
    at = at->second.peers.empty() ? audiences_.erase(at) : std::next(at);
  }
}

void Availability::tick(Now now) {
  for (auto& [object, audience] : audiences_) {
    if (!audience.news.empty() && audience.told + config_.map_interval <= now.boot)
      spread(object, audience, now);
  }
}

std::optional<Duration> Availability::wake_at() const {
  std::optional<Duration> wake;
  for (const auto& [object, audience] : audiences_) {
    if (audience.news.empty()) continue;
    const Duration at = audience.told + config_.map_interval;
    wake = wake ? std::min(*wake, at) : at;
  }
  return wake;
}

pb::ChunkMap& Availability::add_map(const PeerId& peer, const Hash& object) {
  Send& send = effects_.sends.emplace_back();
  send.peer = peer;
  pb::ChunkMap& map = *send.message.mutable_map();
  map.set_manifest(object.raw());
  return map;
}

}  // namespace skerry::exchange
