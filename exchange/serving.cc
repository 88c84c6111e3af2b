// SPDX-License-Identifier: Apache-2.0
#include "exchange/serving.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace skerry::exchange {
namespace {

constexpr std::size_t kReadAheadOfLimit = 2;

Hash hash_of(const std::string& raw) {
  const auto hash = Hash::from_raw(raw);
  SKERRY_CHECK(hash.has_value(), "a message that was not validated");
  return *hash;
}

}  // namespace

void Serving::requested(const PeerId& peer, const pb::ChunkRequest& request, Now now) {
  Asker& asker = askers_[peer];
  if (asker.open.size() >= config_.serve_per_peer) {
    effects_.misbehaved.push_back(
        {peer, {}, text("more than ", config_.serve_per_peer, " requests open")});
    return;
  }
  if (!asker.open.insert(request.id()).second) return;
  asker.waiting.push_back(
      {peer, request.id(), hash_of(request.manifest()), hash_of(request.hash())});
  pump(now);
}

void Serving::read(ChunkRead answer, Now now) {
  SKERRY_CHECK(reading_ > 0, "an answer to a read that nobody asked for");
  --reading_;
  const auto asker = askers_.find(answer.peer);
  if (asker != askers_.end() && asker->second.open.contains(answer.request)) {
    Send& send = read_.emplace_back();
    send.peer = answer.peer;
    pb::ChunkReply& reply = *send.message.mutable_reply();
    reply.set_id(answer.request);
    reply.set_hash(answer.chunk.raw());
    // Whatever the reason, damaged bytes above all: to the peer the chunk is
    // not here.
    reply.set_missing(!answer.bytes.has_value());
    if (answer.bytes) reply.set_data(std::move(*answer.bytes));
  }
  pump(now);
}

void Serving::disconnected(const PeerId& peer, Now now) {
  askers_.erase(peer);
  std::erase_if(read_, [&](const Send& send) { return send.peer == peer; });
  pump(now);
}

void Serving::serve_only(std::vector<Hash> objects, Now now) {
  only_ = std::move(objects);
  pump(now);
}

// What was read and has not gone counts as being read, so that little waits in
// memory.
bool Serving::read_next() {
  // Under a limit little is read ahead: peers take turns at what goes out, not
  // at the disk.
  const std::size_t ahead = config_.upload_limit > 0 ? kReadAheadOfLimit : config_.serve_reads;
  if (reading_ + read_.size() >= std::min(ahead, config_.serve_reads)) return false;
  const auto next_of = [&](Asker& asker) {
    return std::ranges::find_if(asker.waiting, [&](const ReadChunk& each) {
      return only_.empty() || std::ranges::find(only_, each.object) != only_.end();
    });
  };
  const auto read_in = [&](auto from, auto to) {
    for (; from != to; ++from) {
      auto& [peer, asker] = *from;
      const auto next = next_of(asker);
      if (next == asker.waiting.end()) continue;
      ++reading_;
      last_ = peer;
      effects_.jobs.emplace_back(std::move(*next));
      asker.waiting.erase(next);
      return true;
    }
    return false;
  };
  const auto middle = askers_.upper_bound(last_);
  return read_in(middle, askers_.end()) || read_in(askers_.begin(), middle);
}

void Serving::pump(Now now) {
  while (!read_.empty() && upload_.is_open(now)) {
    const pb::ChunkReply& reply = read_.front().message.reply();
    upload_.take(reply.data().size(), now);
    askers_.at(read_.front().peer).open.erase(reply.id());
    effects_.sends.push_back(std::move(read_.front()));
    read_.pop_front();
  }
  while (read_next()) {
  }
}

std::optional<Duration> Serving::wake_at() const {
  return read_.empty() ? std::nullopt : std::optional(upload_.opens_at());
}

}  // namespace skerry::exchange
