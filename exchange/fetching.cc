// SPDX-License-Identifier: Apache-2.0
#include "exchange/fetching.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace skerry::exchange {
namespace {

constexpr int kLateTimeouts = 4;  // then an answer is not expected any more

bool names(const std::vector<PeerId>& list, const PeerId& peer) {
  return std::find(list.begin(), list.end(), peer) != list.end();
}

void add_missing(std::vector<PeerId>& list, const std::vector<PeerId>& more) {
  for (const PeerId& peer : more) {
    if (!names(list, peer)) list.push_back(peer);
  }
}

}  // namespace

Fetching::Fetching(const Config& config, Effects& effects, Availability& availability)
    : config_(config),
      effects_(effects),
      availability_(availability),
      download_(config.download_limit),
      next_request_(config.incarnation << 24 | 1) {}

// ---- What happens to peers ----

void Fetching::peer_ready(const PeerId& name, const Greeting& greeting, Now now) {
  Peer& peer = peers_[name];
  peer.greeting = greeting;
  for (auto& [object, fetch] : fetches_) add_source(fetch, name, peer, now);
  pump(now);
}

void Fetching::peer_gone(const PeerId& name, Now now) {
  const auto found = peers_.find(name);
  if (found == peers_.end()) return;
  while (!found->second.open.empty())
    give_back(close(found->second, found->second.open.begin()), false);
  peers_.erase(found);
  for (auto& [object, fetch] : fetches_) fetch.sources.remove(name);
  pump(now);
}

void Fetching::add_source(Fetch& fetch, const PeerId& name, const Peer& peer, Now now) {
  const bool is_last_resort = names(fetch.want.last_resort, name);
  const bool is_named = fetch.want.from.empty() || names(fetch.want.from, name) || is_last_resort;
  if (!is_named || fetch.liars.contains(name)) return;
  Source& source = fetch.sources.add(name, peer.greeting, is_last_resort, now);
  source.is_silent = peer.is_silent;
  if (peer.greeting.speaks_maps) ask_map(name, fetch.want.object, source, now);
}

void Fetching::set_silent(const PeerId& name, Peer& peer, bool is_silent) {
  if (std::exchange(peer.is_silent, is_silent) == is_silent) return;
  for (auto& [object, fetch] : fetches_) {
    if (Source* source = fetch.sources.find(name)) source->is_silent = is_silent;
  }
}

void Fetching::ask_map(const PeerId& name, const Hash& object, Source& source, Now now) {
  source.map_asked = now.boot;
  Send& send = effects_.sends.emplace_back();
  send.peer = name;
  send.message.mutable_map_request()->set_manifest(object.raw());
}

void Fetching::wanted_too(const PeerId& name, const Hash& object, Now now) {
  const auto fetch = fetches_.find(object);
  if (fetch == fetches_.end()) return;
  Source* source = fetch->second.sources.find(name);
  // It said before that it neither has nor receives it.
  if (source == nullptr || !source->has_answered || source->is_receiving || source->has.is_whole())
    return;
  ask_map(name, object, *source, now);
}

void Fetching::mapped(const PeerId& name, const pb::ChunkMap& map, Now now) {
  const auto object = Hash::from_raw(map.manifest());
  SKERRY_CHECK(object.has_value(), "a message that was not validated");
  const auto fetch = fetches_.find(*object);
  if (fetch == fetches_.end()) return;
  Source* source = fetch->second.sources.find(name);
  if (source == nullptr) return;
  const bool is_news = fetch->second.sources.take(*source, map);
  source->map_asked = now.boot;
  if (is_news && source->is_receiving && !source->is_last_resort) fetch->second.news_at = now.boot;
  if (!source->has.has(0) && !source->is_receiving) {
    fetch->second.trouble = text(name, " does not have chunk ", object->short_hex());
  }
  pump(now);
}

void Fetching::replied(const PeerId& name, pb::ChunkReply reply, Now now) {
  const auto peer = peers_.find(name);
  if (peer == peers_.end()) return;
  const auto open = peer->second.open.find(reply.id());
  if (open == peer->second.open.end()) return came_late(name, peer->second, std::move(reply), now);
  const auto fetch = fetches_.find(open->second.object);
  SKERRY_CHECK(fetch != fetches_.end(), "an open request belongs to a fetch");
  const Hash hash = fetch->second.chunks[open->second.chunk].hash;
  if (hash.raw() != reply.hash()) return;  // an answer to something else
  const Request request = close(peer->second, open);
  peer->second.replied = now.boot;
  set_silent(name, peer->second, false);
  Source* source = fetch->second.sources.find(name);
  if (reply.missing()) {
    fetch->second.trouble = text(name, " does not have chunk ", hash.short_hex());
    if (source != nullptr) fetch->second.sources.missed(*source, request.chunk, now);
    give_back(request, false);
  } else if (blake2b(reply.data()) != hash) {
    give_back(request, true);
    lied(name, fetch, request);
  } else {
    download_.give_back(
        request.bytes -
        std::min(request.bytes, reply.data().size()));  // a manifest's size was a guess
    came(name, peer->second, fetch, request, std::move(*reply.mutable_data()), now);
  }
  pump(now);
}

void Fetching::came(const PeerId& name, Peer& peer, Fetches::iterator fetch, const Request& request,
                    std::string bytes, Now now) {
  peer.speed.received(request.mark, bytes.size(), now);
  // Requests are answered in about their order: what was asked for long before
  // this one was lost.
  std::erase_if(peer.late, [&](const auto& late) {
    return late.second.mark.at + config_.request_timeout < request.mark.at;
  });
  if (Source* source = fetch->second.sources.find(name)) source->misses = 0;
  fetch->second.progress_at = fetch->second.news_at = now.boot;
  TransferStats& all = fetch->second.stats;
  all.bytes += bytes.size();
  all.from[name] += bytes.size();
  all.took = now.boot - fetch->second.first_asked.value_or(request.mark.at);
  close_others(request.object, request.chunk);
  if (request.chunk == 0) {
    took_manifest(fetch->second, std::move(bytes));
  } else {
    took_chunk(fetch->second, request.chunk, std::move(bytes));
  }
}

// Where many share a slow line, each chunk comes after its receiver stopped
// waiting: thrown away, it would be requested without end.
void Fetching::came_late(const PeerId& name, Peer& peer, pb::ChunkReply reply, Now now) {
  const auto late = peer.late.find(reply.id());
  if (late == peer.late.end()) return;  // doubled: harmless
  const Request request = late->second;
  peer.late.erase(late);
  peer.replied = now.boot;
  set_silent(name, peer, false);
  const auto fetch = fetches_.find(request.object);
  if (fetch == fetches_.end() || request.chunk >= fetch->second.chunks.size()) return;
  if (fetch->second.phase != Phase::kManifest && fetch->second.phase != Phase::kChunks) return;
  const Chunk& chunk = fetch->second.chunks[request.chunk];
  std::vector<ChunkIndex>& wanted = fetch->second.wanted;
  const auto place = std::find(wanted.begin(), wanted.end(), request.chunk);
  if (place == wanted.end() && chunk.requests == 0) return;  // it came from elsewhere
  if (chunk.hash.raw() != reply.hash() || blake2b(reply.data()) != chunk.hash) return;
  if (place != wanted.end()) wanted.erase(place);
  if (Source* source = fetch->second.sources.find(name)) source->paused_until = {};
  download_.take(reply.data().size(), now);
  came(name, peer, fetch, request, std::move(*reply.mutable_data()), now);
  pump(now);
}

void Fetching::lied(const PeerId& peer, Fetches::iterator at, const Request& request) {
  Fetch& fetch = at->second;
  const std::string reason =
      text("sent wrong bytes for chunk ", fetch.chunks[request.chunk].hash.short_hex());
  effects_.misbehaved.push_back({peer, request.object, reason});
  fetch.liars.insert(peer);
  fetch.sources.remove(peer);
  fetch.trouble = text(peer, " ", reason);
  const auto is_liar = [&](const PeerId& each) { return fetch.liars.contains(each); };
  const auto all_lie = [&](const auto& list) {
    return std::all_of(list.begin(), list.end(), is_liar);
  };
  const auto& [from, last_resort] = std::tie(fetch.want.from, fetch.want.last_resort);
  const bool is_left =
      from.empty() ? last_resort.empty() || !fetch.sources.all().empty() : !all_lie(from);
  if (!is_left && all_lie(last_resort)) {
    fail_fetch(at, fail(ErrorCode::kCorrupt, text("no honest peer is left: ", fetch.trouble)),
               true);
  }
}

// ---- What happens to objects ----

const ChunkSet* Fetching::held(const Hash& object) const {
  const auto found = fetches_.find(object);
  return found == fetches_.end() ? nullptr : &found->second.held;
}

void Fetching::fetch(const Want& want, Now now) {
  const auto [at, is_new] = fetches_.try_emplace(want.object, want, config_);
  Fetch& fetch = at->second;
  fetch.progress_at = fetch.news_at = now.boot;
  if (is_new) {
    const bool is_known =
        want.manifest_bytes > 0 && want.manifest_bytes <= storage::kMaxManifestBytes;
    fetch.chunks.push_back(
        {want.object, is_known ? want.manifest_bytes : storage::kMaxManifestBytes});
    fetch.wanted.push_back(0);
    fetch.missing = 1;
  } else {
    fetch.liars.clear();
    // None known means anyone; naming some narrows nothing.
    if (want.from.empty()) fetch.want.from.clear();
    if (!fetch.want.from.empty()) add_missing(fetch.want.from, want.from);
    add_missing(fetch.want.last_resort, want.last_resort);
    fetch.sources.clear();
  }
  for (const auto& [name, peer] : peers_) add_source(fetch, name, peer, now);
  pump(now);
}

void Fetching::cancel(const Hash& object, Now now) {
  const auto found = fetches_.find(object);
  if (found == fetches_.end()) return;
  forget(found);
  pump(now);
}

void Fetching::took_manifest(Fetch& fetch, std::string bytes) {
  auto named = storage::decode_manifest(std::move(bytes));
  if (!named) {
    // It is what the name says: any other peer has the same.
    fail_fetch(fetches_.find(fetch.want.object), named.error(), false);
    return;
  }
  // Chunks count over the whole manifest, whatever parts are wanted: all peers
  // count alike.
  for (const storage::Chunk& chunk : storage::distinct_chunks(named->manifest)) {
    fetch.index_of[chunk.hash] = static_cast<ChunkIndex>(fetch.chunks.size());
    fetch.chunks.push_back({chunk.hash, chunk.bytes});
  }
  for (const storage::Chunk& chunk : storage::distinct_chunks(named->manifest, fetch.want.parts)) {
    fetch.wanted.push_back(fetch.index_of.at(chunk.hash));
    fetch.progress.total_bytes += chunk.bytes;
  }
  fetch.missing = fetch.wanted.size();
  fetch.sources.set_chunks(fetch.chunks.size());
  fetch.phase = Phase::kOpening;
  effects_.jobs.emplace_back(OpenObject{std::move(*named), fetch.want.parts});
}

void Fetching::opened(ObjectOpened answer, Now now) {
  const auto found = fetches_.find(answer.object);
  if (found == fetches_.end() || found->second.phase != Phase::kOpening) return;
  Fetch& fetch = found->second;
  if (!answer.present) {
    fail_fetch(found, answer.present.error(), true);
    return;
  }
  fetch.held.add(0);
  availability_.gained(answer.object, 0, now);
  for (const Hash& hash : *answer.present) {
    const auto index = fetch.index_of.find(hash);
    if (index == fetch.index_of.end() || fetch.held.has(index->second)) continue;
    fetch.held.add(index->second);
    availability_.gained(answer.object, index->second, now);
  }
  std::erase_if(fetch.wanted, [&](ChunkIndex chunk) {
    if (!fetch.held.has(chunk)) return false;
    fetch.progress.bytes += fetch.chunks[chunk].bytes;
    --fetch.missing;
    return true;
  });
  fetch.phase = Phase::kChunks;
  fetch.progress_at = fetch.news_at = now.boot;
  for (auto& [name, source] : fetch.sources.all()) source.is_dry = false;
  effects_.progress[answer.object] = fetch.progress;
  seal_if_whole(fetch);
  pump(now);
}

void Fetching::took_chunk(Fetch& fetch, ChunkIndex index, std::string bytes) {
  Chunk& chunk = fetch.chunks[index];
  chunk.is_writing = true;
  ++fetch.writing;
  window_used_ += chunk.bytes;
  effects_.jobs.emplace_back(WriteChunk{fetch.want.object, chunk.hash, std::move(bytes)});
}

void Fetching::written(const ChunkWritten& answer, Now now) {
  const auto found = fetches_.find(answer.object);
  if (found == fetches_.end()) return;
  Fetch& fetch = found->second;
  const auto index = fetch.index_of.find(answer.chunk);
  if (index == fetch.index_of.end() || !fetch.chunks[index->second].is_writing) return;
  Chunk& chunk = fetch.chunks[index->second];
  chunk.is_writing = false;
  --fetch.writing;
  window_used_ -= chunk.bytes;
  fetch.progress_at = now.boot;
  if (!answer.outcome) {
    fail_fetch(found, answer.outcome.error(), true);
  } else {
    --fetch.missing;
    fetch.progress.bytes += chunk.bytes;
    fetch.held.add(index->second);
    availability_.gained(answer.object, index->second, now);
    effects_.progress[answer.object] = fetch.progress;
    seal_if_whole(fetch);
  }
  pump(now);
}

void Fetching::seal_if_whole(Fetch& fetch) {
  if (fetch.phase != Phase::kChunks || fetch.missing > 0) return;
  fetch.phase = Phase::kSealing;
  effects_.jobs.emplace_back(SealObject{fetch.want.object});
}

void Fetching::sealed(const ObjectSealed& answer) {
  const auto found = fetches_.find(answer.object);
  if (found == fetches_.end() || found->second.phase != Phase::kSealing) return;
  if (!answer.outcome) {
    fail_fetch(found, answer.outcome.error(), true);
    return;
  }
  effects_.completed.push_back({answer.object, std::move(found->second.stats)});
  forget(found);
}

void Fetching::fail_fetch(Fetches::iterator fetch, Error error, bool may_retry) {
  effects_.failed.push_back({fetch->first, std::move(error), may_retry});
  forget(fetch);
}

void Fetching::forget(Fetches::iterator fetch) {
  close_all([&](const Request& open) { return open.object == fetch->first; });
  for (const Chunk& chunk : fetch->second.chunks) {
    if (chunk.is_writing) window_used_ -= chunk.bytes;
  }
  availability_.ended(fetch->first, fetch->second.held);
  fetches_.erase(fetch);
}

// ---- Requests ----

Fetching::Request Fetching::close(Peer& peer, OpenRequest open) {
  const Request request = open->second;
  peer.bytes -= request.bytes;
  window_used_ -= request.bytes;
  --fetches_.at(request.object).chunks[request.chunk].requests;
  peer.open.erase(open);
  return request;
}

void Fetching::close_all(const std::function<bool(const Request&)>& which) {
  for (auto& [name, peer] : peers_) {
    for (auto at = peer.open.begin(); at != peer.open.end();) {
      const auto open = at++;
      if (which(open->second)) close(peer, open);
    }
  }
}

// The chunk is here: what other peers were asked for as well comes in vain.
void Fetching::close_others(const Hash& object, ChunkIndex chunk) {
  if (fetches_.at(object).chunks[chunk].requests == 0) return;
  close_all([&](const Request& open) { return open.object == object && open.chunk == chunk; });
}

void Fetching::give_back(const Request& request, bool came) {
  if (!came) download_.give_back(request.bytes);
  Fetch& fetch = fetches_.at(request.object);
  if (fetch.chunks[request.chunk].requests > 0) return;  // another peer was asked too
  fetch.wanted.push_back(request.chunk);
  for (auto& [name, source] : fetch.sources.all()) source.is_dry = false;
}

bool Fetching::ask(const PeerId& name, Peer& peer, Fetch& fetch, ChunkIndex index, Now now) {
  Chunk& chunk = fetch.chunks[index];
  // One chunk may always go, whatever the limit.
  if (window_used_ > 0 && window_used_ + chunk.bytes > config_.window_bytes) return false;
  ++chunk.requests;
  window_used_ += chunk.bytes;
  peer.bytes += chunk.bytes;
  download_.take(chunk.bytes, now);
  if (!fetch.first_asked) fetch.first_asked = now.boot;
  last_asked_ = fetch.want.object;
  const std::uint64_t id = next_request_++;
  peer.open[id] = {fetch.want.object, index, chunk.bytes, peer.speed.mark(now)};
  Send& send = effects_.sends.emplace_back();
  send.peer = name;
  pb::ChunkRequest& request = *send.message.mutable_request();
  request.set_id(id);
  request.set_manifest(fetch.want.object.raw());
  request.set_hash(chunk.hash.raw());
  return true;
}

// ---- Whom to ask for what ----

// From when on a last resort may be asked for the chunk; none: others have it,
// or it is somebody else's and enough is open.
std::optional<Duration> Fetching::free_from(const Peer& peer, const Fetch& fetch, ChunkIndex chunk,
                                            Now now) const {
  const auto turn = fetch.sources.turn_at_last_resort(chunk, now);
  if (!turn || (*turn > 0 && !peer.open.empty())) return std::nullopt;
  const Duration each = std::max(config_.turn, 2 * peer.speed.expected(fetch.chunks[chunk].bytes));
  const Duration from = fetch.news_at + std::min<Duration>(*turn * each, config_.give_up / 2);
  const auto others = chunk == 0 ? std::nullopt : fetch.sources.others_answer_by(now);
  return others ? std::max(from, *others) : from;
}

// The peer was asked for it before, and will perhaps still bring it.
bool Fetching::is_late(const Peer& peer, const Fetch& fetch, ChunkIndex chunk) {
  return std::any_of(peer.late.begin(), peer.late.end(), [&](const auto& late) {
    return late.second.object == fetch.want.object && late.second.chunk == chunk;
  });
}

// The rarest chunk that the peer has, as a place in `wanted`; what it was asked
// for before comes last.
std::optional<std::size_t> Fetching::choose(const Peer& peer, Fetch& fetch, Source& source,
                                            Now now) {
  if (source.is_dry) return std::nullopt;
  const Sources& sources = fetch.sources;
  std::optional<std::size_t> best;
  std::tuple<bool, unsigned, std::uint64_t> best_rank;
  for (std::size_t place = 0; place < fetch.wanted.size(); ++place) {
    const ChunkIndex chunk = fetch.wanted[place];
    if (!sources.may_have(source, chunk, now)) continue;
    if (source.is_silent && sources.is_within_reach(chunk, now)) continue;
    if (source.is_last_resort) {
      const auto from = free_from(peer, fetch, chunk, now);
      if (!from) continue;
      if (now.boot < *from) {
        look_again_at(*from);
        continue;
      }
    }
    const std::tuple rank(is_late(peer, fetch, chunk), sources.holders(chunk),
                          sources.order_of(chunk));
    if (best && best_rank <= rank) continue;
    best = place;
    best_rank = rank;
  }
  source.is_dry = !best && !source.is_last_resort && !source.is_silent;
  return best;
}

// Once every chunk is requested: a chunk that is overdue at every peer that was
// asked. Or one that this idle peer would send much sooner than they. Of
// peers that ever answered, no more than two are asked. A last resort is asked
// only for what was asked of peers that are silent or never answered.
std::optional<ChunkIndex> Fetching::choose_again(const PeerId& name, const Peer& peer,
                                                 const Fetch& fetch, Now now) {
  struct Asked {
    unsigned answering = 0;  // of those who were asked, who ever answered
    bool only_mute = true;   // the others are silent, or have not answered yet
    Duration overdue = Duration::min();
  };
  std::map<ChunkIndex, Asked> chunks;
  for (const auto& [other_name, other] : peers_) {
    const Speed& speed = other.speed.bytes_per_second() > 0 ? other.speed : peer.speed;
    std::size_t bytes = 0;
    for (const auto& [id, request] : other.open) {
      bytes += request.bytes;
      if (request.object != fetch.want.object) continue;
      Asked& asked = chunks[request.chunk];
      const bool has_answered = other.replied != Duration{};
      asked.answering += has_answered;
      if (other.is_silent) continue;
      asked.only_mute &= !has_answered;
      const Duration here = peer.speed.expected(request.bytes);
      const Duration there = speed.expected(bytes);
      asked.overdue =
          std::max(asked.overdue, request.mark.at + (there > 3 * here ? 2 * here : there + here));
    }
  }
  const Source& source = fetch.sources.all().at(name);
  for (const auto& [chunk, asked] : chunks) {
    if (asked.answering > 1 || is_late(peer, fetch, chunk)) continue;
    if (!fetch.sources.may_have(source, chunk, now)) continue;
    if (source.is_last_resort && !asked.only_mute) continue;
    if (asked.overdue <= now.boot) return chunk;
    look_again_at(asked.overdue);
  }
  return std::nullopt;
}

bool Fetching::ask_one(const PeerId& name, Peer& peer, Now now) {
  const auto ask_in = [&](Fetches::iterator from, Fetches::iterator to) {
    for (auto at = from; at != to; ++at) {
      Fetch& fetch = at->second;
      if (fetch.phase != Phase::kManifest && fetch.phase != Phase::kChunks) continue;
      Source* source = fetch.sources.find(name);
      if (source == nullptr) continue;
      if (const auto place = choose(peer, fetch, *source, now)) {
        if (!ask(name, peer, fetch, fetch.wanted[*place], now)) continue;
        fetch.wanted[*place] = fetch.wanted.back();
        fetch.wanted.pop_back();
        return true;
      }
      if (!fetch.wanted.empty() || !peer.open.empty()) continue;
      if (const auto chunk = choose_again(name, peer, fetch, now)) {
        if (ask(name, peer, fetch, *chunk, now)) return true;
      }
    }
    return false;
  };
  // Objects take turns: those after the one that was asked for last, then the
  // others.
  const auto middle = fetches_.upper_bound(last_asked_);
  return ask_in(middle, fetches_.end()) || ask_in(fetches_.begin(), middle);
}

// How many requested bytes each peer may owe. Its own speed bounds them, and so
// does its share of the whole window by speed: slow peers must not fill it.
std::map<PeerId, std::size_t> Fetching::shares(Now now) const {
  const auto is_active = [&](const PeerId& name, const Peer& peer) {
    if (!peer.open.empty()) return true;
    return std::any_of(fetches_.begin(), fetches_.end(), [&](const auto& each) {
      const auto source = each.second.sources.all().find(name);
      if (source == each.second.sources.all().end() || source->second.paused_until > now.boot)
        return false;
      return each.second.wanted.empty() ? each.second.missing > each.second.writing
                                        : !source->second.is_dry;
    });
  };
  double known = 0;
  std::size_t measured = 0;
  for (const auto& [name, peer] : peers_) {
    known += peer.speed.bytes_per_second();
    measured += peer.speed.bytes_per_second() > 0;
  }
  const double usual = measured == 0 ? 1 : known / static_cast<double>(measured);
  std::map<PeerId, double> weights;
  double all = 0;
  for (const auto& [name, peer] : peers_) {
    if (!is_active(name, peer)) continue;
    const double speed = peer.speed.bytes_per_second();
    all += weights[name] = speed > 0 ? speed : usual;
  }
  std::map<PeerId, std::size_t> result;
  for (const auto& [name, weight] : weights) {
    const auto share =
        static_cast<std::size_t>(static_cast<double>(config_.window_bytes) * weight / all);
    result[name] = std::min(share, peers_.at(name).speed.window());
  }
  return result;
}

void Fetching::pump(Now now) {
  look_at_.reset();
  const std::map<PeerId, std::size_t> of_each = shares(now);
  // One request a peer and turn: a fast peer empties its window sooner and is
  // asked for more.
  for (bool asked = true; asked;) {
    asked = false;
    for (const auto& [name, share] : of_each) {
      Peer& peer = peers_.at(name);
      const std::size_t unanswered = peer.open.size() + peer.late.size();
      const bool has_room = unanswered < config_.window_per_peer && peer.bytes < share;
      if (!has_room && unanswered > 0) continue;
      if (!download_.is_open(now)) {
        look_again_at(download_.opens_at());
        return;
      }
      if (ask_one(name, peer, now)) asked = true;
    }
  }
}

// ---- Time ----

bool Fetching::waits_for_peers(const Fetch& fetch) {
  return (fetch.phase == Phase::kManifest || fetch.phase == Phase::kChunks) && fetch.writing == 0;
}

Duration Fetching::deadline(const Peer& peer, const Request& request) const {
  return std::max(request.mark.at, peer.replied) + config_.request_timeout;
}

Duration Fetching::no_longer_late(const Peer& peer, const Request& request) const {
  return std::max(request.mark.at, peer.replied) + kLateTimeouts * config_.request_timeout;
}

std::string Fetching::why_stuck(const Fetch& fetch) {
  const auto lost = std::find_if(fetch.wanted.begin(), fetch.wanted.end(),
                                 [&](ChunkIndex chunk) { return fetch.sources.nobody_has(chunk); });
  if (lost == fetch.wanted.end()) return fetch.trouble.empty() ? "no peer answers" : fetch.trouble;
  if (fetch.sources.all().empty() && *lost == 0 && fetch.trouble.empty()) {
    return "no peer that has it is connected";
  }
  const auto last = fetch.sources.last_seen_at(*lost);
  return text("no connected peer has chunk ", fetch.chunks[*lost].hash.short_hex(),
              last ? text("; ", *last, " had it last") : "",
              fetch.trouble.empty() ? "" : "; " + fetch.trouble);
}

void Fetching::tick(Now now) {
  for (auto& [name, peer] : peers_) {
    const Peer& asked = peer;
    std::erase_if(peer.late,
                  [&](const auto& late) { return no_longer_late(asked, late.second) <= now.boot; });
    for (auto at = peer.open.begin(); at != peer.open.end();) {
      const auto open = at++;
      if (now.boot < deadline(peer, open->second)) continue;
      const std::uint64_t id = open->first;
      const Request request = close(peer, open);
      peer.late[id] = request;
      Fetch& fetch = fetches_.at(request.object);
      fetch.trouble = text(name, " did not answer in time");
      set_silent(name, peer, true);
      const auto is_told = [&, &silent = name](const Stalled& each) {
        return each.peer == silent && each.object == request.object;
      };
      if (std::ranges::none_of(effects_.stalled, is_told))
        effects_.stalled.push_back({name, request.object});
      if (Source* source = fetch.sources.find(name))
        source->paused_until = now.boot + config_.peer_pause;
      give_back(request, false);
    }
  }
  for (auto at = fetches_.begin(); at != fetches_.end();) {
    const auto fetch = at++;
    fetch->second.sources.tick(now);
    for (auto& [name, source] : fetch->second.sources.all()) {
      const auto due = fetch->second.sources.map_due(source);
      if (due && *due <= now.boot) ask_map(name, fetch->first, source, now);
    }
    if (!waits_for_peers(fetch->second)) continue;
    if (now.boot < fetch->second.progress_at + config_.give_up) continue;
    fail_fetch(fetch, fail(ErrorCode::kUnavailable, why_stuck(fetch->second)), true);
  }
  pump(now);
}

std::optional<Duration> Fetching::wake_at() const {
  std::optional<Duration> wake = look_at_;
  const auto by = [&](Duration at) { wake = wake ? std::min(*wake, at) : at; };
  for (const auto& [name, peer] : peers_) {
    for (const auto& [id, request] : peer.open) by(deadline(peer, request));
    for (const auto& [id, request] : peer.late) by(no_longer_late(peer, request));
  }
  for (const auto& [object, fetch] : fetches_) {
    if (waits_for_peers(fetch)) by(fetch.progress_at + config_.give_up);
    if (const auto at = fetch.sources.wake_at()) by(*at);
  }
  return wake;
}

}  // namespace skerry::exchange
