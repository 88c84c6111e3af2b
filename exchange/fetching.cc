#include "exchange/fetching.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"

namespace skerry::exchange {

Fetching::Fetching(const Config& config, Effects& effects)
    : config_(config), effects_(effects), next_request_(config.incarnation << 24 | 1) {}

// ---- What happens to peers ----

void Fetching::peer_ready(const PeerId& peer, Now now) {
  peers_.try_emplace(peer);
  for (auto& [object, fetch] : fetches_) fetch.paused_until.erase(peer);
  pump(now);
}

void Fetching::peer_gone(const PeerId& peer, Now now) {
  const auto found = peers_.find(peer);
  if (found == peers_.end()) return;
  for (const auto& [id, request] : found->second.open) give_back(request, true);
  peers_.erase(found);
  pump(now);
}

void Fetching::replied(const PeerId& name, pb::ChunkReply reply, Now now) {
  const auto peer = peers_.find(name);
  if (peer == peers_.end()) return;
  const auto open = peer->second.open.find(reply.id());
  // Late, doubled, or an answer to something else: harmless.
  if (open == peer->second.open.end() || open->second.chunk.raw() != reply.hash()) return;
  const Request request = close(peer->second, open);
  peer->second.replied = now.boot;
  const auto fetch = fetches_.find(request.object);
  SKERRY_CHECK(fetch != fetches_.end(), "an open request belongs to a fetch");
  if (reply.missing()) {
    fetch->second.trouble = text(name, " does not have chunk ", request.chunk.short_hex());
    fetch->second.paused_until[name] = now.boot + config_.peer_pause;
    give_back(request, false);
  } else if (blake2b(reply.data()) != request.chunk) {
    lied(name, fetch, request);
  } else {
    fetch->second.progress_at = now.boot;
    fetch->second.asked.erase(request.chunk);
    std::string bytes = std::move(*reply.mutable_data());
    if (request.chunk == request.object && fetch->second.phase == Phase::kManifest) {
      took_manifest(fetch->second, std::move(bytes));
    } else {
      took_chunk(fetch->second, request.chunk, std::move(bytes));
    }
  }
  pump(now);
}

void Fetching::lied(const PeerId& peer, Fetches::iterator fetch, const Request& request) {
  const std::string reason = text("sent wrong bytes for chunk ", request.chunk.short_hex());
  effects_.misbehaved.push_back({peer, request.object, reason});
  fetch->second.liars.insert(peer);
  fetch->second.trouble = text(peer, " ", reason);
  give_back(request, true);
  const auto& from = fetch->second.want.from;
  const auto is_liar = [&](const PeerId& each) { return fetch->second.liars.contains(each); };
  if (!from.empty() && std::all_of(from.begin(), from.end(), is_liar)) {
    fail_fetch(fetch, fail(ErrorCode::kCorrupt, text("no honest peer is left: ", fetch->second.trouble)),
               true);
  }
}

// ---- What happens to objects ----

void Fetching::fetch(const Want& want, Now now) {
  const auto [at, is_new] = fetches_.try_emplace(want.object);
  Fetch& fetch = at->second;
  fetch.progress_at = now.boot;
  if (is_new) {
    fetch.want = want;
    const bool is_known = want.manifest_bytes > 0 && want.manifest_bytes <= storage::kMaxManifestBytes;
    fetch.sizes[want.object] = is_known ? want.manifest_bytes : storage::kMaxManifestBytes;
    fetch.pending.push_back(want.object);
  } else {
    fetch.liars.clear();
    fetch.paused_until.clear();
    std::vector<PeerId>& from = fetch.want.from;
    if (want.from.empty()) from.clear();
    for (const PeerId& peer : want.from) {
      // None known means anyone; naming some narrows nothing.
      if (!from.empty() && std::find(from.begin(), from.end(), peer) == from.end()) from.push_back(peer);
    }
  }
  pump(now);
}

void Fetching::cancel(const Hash& object, Now now) {
  const auto found = fetches_.find(object);
  if (found == fetches_.end()) return;
  forget(found);
  pump(now);
}

void Fetching::took_manifest(Fetch& fetch, std::string bytes) {
  const Hash object = fetch.want.object;
  window_used_ -= fetch.sizes.at(object);
  fetch.sizes.erase(object);
  auto named = storage::decode_manifest(std::move(bytes));
  if (!named) {
    // It is what the name says: any other peer has the same.
    fail_fetch(fetches_.find(object), named.error(), false);
    return;
  }
  for (const storage::Chunk& chunk : storage::distinct_chunks(named->manifest, fetch.want.parts)) {
    fetch.sizes[chunk.hash] = chunk.bytes;
    fetch.pending.push_back(chunk.hash);
    fetch.progress.total_bytes += chunk.bytes;
  }
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
  for (const Hash& hash : *answer.present) {
    const auto size = fetch.sizes.find(hash);
    if (size == fetch.sizes.end()) continue;
    fetch.progress.bytes += size->second;
    fetch.sizes.erase(size);
  }
  std::erase_if(fetch.pending, [&](const Hash& hash) { return !fetch.sizes.contains(hash); });
  fetch.phase = Phase::kChunks;
  fetch.progress_at = now.boot;
  effects_.progress[answer.object] = fetch.progress;
  seal_if_whole(fetch);
  pump(now);
}

void Fetching::took_chunk(Fetch& fetch, const Hash& chunk, std::string bytes) {
  fetch.writing.insert(chunk);
  effects_.jobs.emplace_back(WriteChunk{fetch.want.object, chunk, std::move(bytes)});
}

void Fetching::written(const ChunkWritten& answer, Now now) {
  const auto found = fetches_.find(answer.object);
  if (found == fetches_.end()) return;
  Fetch& fetch = found->second;
  if (fetch.writing.erase(answer.chunk) == 0) return;
  const auto size = fetch.sizes.find(answer.chunk);
  window_used_ -= size->second;
  fetch.progress.bytes += size->second;
  fetch.sizes.erase(size);
  fetch.progress_at = now.boot;
  if (!answer.outcome) {
    fail_fetch(found, answer.outcome.error(), true);
  } else {
    effects_.progress[answer.object] = fetch.progress;
    seal_if_whole(fetch);
  }
  pump(now);
}

void Fetching::seal_if_whole(Fetch& fetch) {
  if (fetch.phase != Phase::kChunks || !fetch.sizes.empty()) return;
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
  forget(found);
  effects_.completed.push_back({answer.object});
}

void Fetching::fail_fetch(Fetches::iterator fetch, Error error, bool may_retry) {
  effects_.failed.push_back({fetch->first, std::move(error), may_retry});
  forget(fetch);
}

void Fetching::forget(Fetches::iterator fetch) {
  for (auto& [name, peer] : peers_) {
    for (auto at = peer.open.begin(); at != peer.open.end();) {
      const auto open = at++;
      if (open->second.object == fetch->first) close(peer, open);
    }
  }
  for (const Hash& hash : fetch->second.asked) window_used_ -= fetch->second.sizes.at(hash);
  for (const Hash& hash : fetch->second.writing) window_used_ -= fetch->second.sizes.at(hash);
  fetches_.erase(fetch);
}

// ---- Asking ----

Fetching::Request Fetching::close(Peer& peer, std::map<std::uint64_t, Request>::iterator open) {
  const Request request = open->second;
  peer.bytes -= fetches_.at(request.object).sizes.at(request.chunk);
  peer.open.erase(open);
  return request;
}

void Fetching::give_back(const Request& request, bool first) {
  Fetch& fetch = fetches_.at(request.object);
  window_used_ -= fetch.sizes.at(request.chunk);
  fetch.asked.erase(request.chunk);
  // Behind the others where a peer lacks it, so that one lost chunk does not hold them up.
  first ? fetch.pending.push_front(request.chunk) : fetch.pending.push_back(request.chunk);
}

bool Fetching::may_ask(const Fetch& fetch, const PeerId& peer, Now now) const {
  const bool is_waiting = fetch.phase == Phase::kManifest || fetch.phase == Phase::kChunks;
  if (!is_waiting || fetch.pending.empty() || fetch.liars.contains(peer)) return false;
  const auto paused = fetch.paused_until.find(peer);
  if (paused != fetch.paused_until.end() && now.boot < paused->second) return false;
  const auto& from = fetch.want.from;
  return from.empty() || std::find(from.begin(), from.end(), peer) != from.end();
}

// What one peer may hold of the window, so that slow ones do not end up with all of it.
std::size_t Fetching::share(Now now) const {
  std::size_t active = 0;
  for (const auto& [name, peer] : peers_) {
    const auto is_askable = [&, &asked = name](const auto& each) { return may_ask(each.second, asked, now); };
    active += !peer.open.empty() || std::any_of(fetches_.begin(), fetches_.end(), is_askable);
  }
  return config_.window_bytes / std::max<std::size_t>(active, 1);
}

bool Fetching::ask_one(const PeerId& name, Peer& peer, std::size_t share, Now now) {
  const auto fits = [&](std::size_t bytes) {
    // One chunk may always go, whatever the limit.
    const bool in_window = window_used_ == 0 || window_used_ + bytes <= config_.window_bytes;
    const bool in_share = peer.open.empty() || peer.bytes + bytes <= share;
    return in_window && in_share;
  };
  const auto ask_in = [&](Fetches::iterator from, Fetches::iterator to) {
    for (auto at = from; at != to; ++at) {
      Fetch& fetch = at->second;
      if (!may_ask(fetch, name, now)) continue;
      const Hash chunk = fetch.pending.front();
      const std::size_t bytes = fetch.sizes.at(chunk);
      if (!fits(bytes)) continue;
      fetch.pending.pop_front();
      fetch.asked.insert(chunk);
      window_used_ += bytes;
      peer.bytes += bytes;
      last_asked_ = at->first;
      const std::uint64_t id = next_request_++;
      peer.open[id] = {at->first, chunk, now.boot};
      Send& send = effects_.sends.emplace_back();
      send.peer = name;
      pb::ChunkRequest& request = *send.message.mutable_request();
      request.set_id(id);
      request.set_manifest(at->first.raw());
      request.set_hash(chunk.raw());
      return true;
    }
    return false;
  };
  // Objects take turns: those after the one that was asked for last, then the others.
  const auto middle = fetches_.upper_bound(last_asked_);
  return ask_in(middle, fetches_.end()) || ask_in(fetches_.begin(), middle);
}

void Fetching::pump(Now now) {
  const std::size_t of_each = share(now);
  // One request a peer and turn: a fast peer empties its window sooner and is asked for more.
  for (bool asked = true; asked;) {
    asked = false;
    for (auto& [name, peer] : peers_) {
      if (peer.open.size() < config_.window_per_peer && ask_one(name, peer, of_each, now)) asked = true;
    }
  }
}

// ---- Time ----

bool Fetching::waits_for_peers(const Fetch& fetch) {
  return (fetch.phase == Phase::kManifest || fetch.phase == Phase::kChunks) && fetch.writing.empty();
}

Duration Fetching::deadline(const Peer& peer, const Request& request) const {
  return std::max(request.sent, peer.replied) + config_.request_timeout;
}

void Fetching::tick(Now now) {
  for (auto& [name, peer] : peers_) {
    for (auto at = peer.open.begin(); at != peer.open.end();) {
      const auto open = at++;
      if (now.boot < deadline(peer, open->second)) continue;
      const Request request = close(peer, open);
      Fetch& fetch = fetches_.at(request.object);
      fetch.trouble = text(name, " did not answer in time");
      fetch.paused_until[name] = now.boot + config_.peer_pause;
      give_back(request, true);
    }
  }
  for (auto at = fetches_.begin(); at != fetches_.end();) {
    const auto fetch = at++;
    std::erase_if(fetch->second.paused_until, [&](const auto& pause) { return pause.second <= now.boot; });
    if (!waits_for_peers(fetch->second)) continue;
    if (now.boot < fetch->second.progress_at + config_.give_up) continue;
    const std::string& trouble = fetch->second.trouble;
    fail_fetch(fetch,
               fail(ErrorCode::kUnavailable, trouble.empty() ? "no peer that has it is connected" : trouble),
               true);
  }
  pump(now);
}

std::optional<Duration> Fetching::wake_at() const {
  std::optional<Duration> wake;
  const auto by = [&](Duration at) { wake = wake ? std::min(*wake, at) : at; };
  for (const auto& [name, peer] : peers_) {
    for (const auto& [id, request] : peer.open) by(deadline(peer, request));
  }
  for (const auto& [object, fetch] : fetches_) {
    if (waits_for_peers(fetch)) by(fetch.progress_at + config_.give_up);
    for (const auto& [peer, until] : fetch.paused_until) by(until);
  }
  return wake;
}

}  // namespace skerry::exchange
