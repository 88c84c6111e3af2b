// SPDX-License-Identifier: Apache-2.0
#include "exchange/sources.h"

#include <algorithm>
#include <cstring>

namespace skerry::exchange {
namespace {

constexpr unsigned kMissesToPause = 4;

// The finaliser of MurmurHash3: every bit depends on every other.
std::uint64_t mix(std::uint64_t value) {
  value = (value ^ value >> 33) * 0xff51afd7ed558ccdU;
  value = (value ^ value >> 33) * 0xc4ceb9fe1a85ec53U;
  return value ^ value >> 33;
}

}  // namespace

std::uint64_t Sources::score(std::uint64_t party, ChunkIndex chunk) const {
  std::uint64_t salt = 0;
  std::memcpy(&salt, object_.bytes.data(), sizeof salt);
  return mix(mix(party ^ salt) + chunk);
}

void Sources::count(const Source& source, int by) {
  if (source.is_last_resort) return;
  for (ChunkIndex i = 0; i < holders_.size(); ++i) {
    if (source.has.has(i)) holders_[i] += static_cast<std::uint32_t>(by);
  }
}

void Sources::set_chunks(std::size_t number) {
  holders_.assign(number, 0);
  for (const auto& [peer, source] : sources_) count(source, 1);
}

Source& Sources::add(const PeerId& peer, const Greeting& greeting, bool is_last_resort, Now now) {
  remove(peer);
  Source& source = sources_[peer];
  source.greeting = greeting;
  source.is_last_resort = is_last_resort;
  source.since = now.boot;
  return source;
}

void Sources::remove(const PeerId& peer) {
  const auto found = sources_.find(peer);
  if (found == sources_.end()) return;
  const Source gone = std::move(found->second);
  sources_.erase(found);
  count(gone, -1);
  for (ChunkIndex i = 0; i < holders_.size(); ++i) {
    if (gone.has.has(i) && holders_[i] == 0) last_seen_[i] = peer;
  }
}

Source* Sources::find(const PeerId& peer) {
  const auto found = sources_.find(peer);
  return found == sources_.end() ? nullptr : &found->second;
}

bool Sources::take(Source& source, const pb::ChunkMap& map) {
  bool is_news = map.whole() && !source.has.is_whole();
  if (is_news) {
    count(source, -1);
    source.has.make_whole();
    count(source, 1);
  }
  const auto gain = [&](ChunkIndex chunk) {
    if (source.has.has(chunk)) return;
    source.has.add(chunk);
    if (!source.is_last_resort && chunk < holders_.size()) ++holders_[chunk];
    is_news = true;
  };
  const std::string& bits = map.bits();
  for (ChunkIndex i = 0; i < 8 * bits.size(); ++i) {
    if ((bits[i / 8] >> i % 8 & 1) != 0) gain(i);
  }
  for (const ChunkIndex chunk : map.added()) gain(chunk);
  source.has_answered = true;
  source.is_receiving = map.receiving() && !map.whole();
  source.is_dry = false;
  return is_news;
}

void Sources::missed(Source& source, ChunkIndex chunk, Now now) {
  source.lacking[chunk] = now.boot + config_.peer_pause;
  if (++source.misses < kMissesToPause) return;
  source.misses = 0;
  source.paused_until = now.boot + config_.peer_pause;
}

std::optional<Duration> Sources::map_due(const Source& source) const {
  if (!source.greeting.speaks_maps || source.has.is_whole()) return std::nullopt;
  return source.map_asked + (source.has_answered ? config_.map_refresh : config_.peer_pause);
}

void Sources::tick(Now now) {
  for (auto& [peer, source] : sources_) {
    const std::size_t lacking = source.lacking.size();
    std::erase_if(source.lacking, [&](const auto& each) { return each.second <= now.boot; });
    if (source.lacking.size() != lacking) source.is_dry = false;
    if (source.paused_until > now.boot || source.paused_until == Duration{}) continue;
    source.paused_until = {};
    source.is_dry = false;
  }
}

std::optional<Duration> Sources::wake_at() const {
  std::optional<Duration> wake;
  const auto by = [&](Duration at) { wake = wake ? std::min(*wake, at) : at; };
  for (const auto& [peer, source] : sources_) {
    if (source.paused_until != Duration{}) by(source.paused_until);
    for (const auto& [chunk, until] : source.lacking) by(until);
    if (const auto due = map_due(source)) by(*due);
  }
  return wake;
}

bool Sources::may_have(const Source& source, ChunkIndex chunk, Now now) const {
  if (!is_usable(source, now) || source.lacking.contains(chunk)) return false;
  // A map that has not come: of the only peer there is, the best guess is that
  // it has everything.
  const bool is_guess =
      !source.greeting.speaks_maps || (!source.has_answered && sources_.size() == 1);
  return is_guess || source.has.has(chunk);
}

bool Sources::is_within_reach(ChunkIndex chunk, Now now) const {
  return std::any_of(sources_.begin(), sources_.end(), [&](const auto& each) {
    return !each.second.is_silent && may_have(each.second, chunk, now);
  });
}

std::optional<unsigned> Sources::turn_at_last_resort(ChunkIndex chunk, Now now) const {
  unsigned turn = 0;
  for (const auto& [peer, source] : sources_) {
    if (source.is_last_resort || source.is_silent || !is_usable(source, now)) continue;
    if (may_have(source, chunk, now)) return std::nullopt;
    turn += source.is_receiving &&
            score(source.greeting.incarnation, chunk) > score(config_.incarnation, chunk);
  }
  return chunk == 0 ? 0 : turn;  // everybody needs the manifest at once, and it is small
}

std::optional<Duration> Sources::others_answer_by(Now now) const {
  std::optional<Duration> by;
  for (const auto& [peer, source] : sources_) {
    const Duration end = source.since + config_.map_wait;
    if (source.is_last_resort || !source.greeting.speaks_maps || source.has_answered ||
        end <= now.boot)
      continue;
    by = by ? std::max(*by, end) : end;
  }
  return by;
}

bool Sources::nobody_has(ChunkIndex chunk) const {
  return std::none_of(sources_.begin(), sources_.end(), [&](const auto& each) {
    const Source& source = each.second;
    return !source.greeting.speaks_maps || !source.has_answered || source.has.has(chunk);
  });
}

std::optional<PeerId> Sources::last_seen_at(ChunkIndex chunk) const {
  const auto found = last_seen_.find(chunk);
  return found == last_seen_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace skerry::exchange
