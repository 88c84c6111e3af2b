#include "exchange/serving.h"

#include "base/check.h"
#include "base/text.h"

namespace skerry::exchange {
namespace {

Hash hash_of(const std::string& raw) {
  const auto hash = Hash::from_raw(raw);
  SKERRY_CHECK(hash.has_value(), "a message that was not validated");
  return *hash;
}

}  // namespace

void Serving::requested(const PeerId& peer, const pb::ChunkRequest& request) {
  std::set<std::uint64_t>& open = open_[peer];
  if (open.size() >= config_.serve_per_peer) {
    effects_.misbehaved.push_back({peer, {}, text("more than ", config_.serve_per_peer, " requests open")});
    return;
  }
  if (!open.insert(request.id()).second) return;
  waiting_.push_back({peer, request.id(), hash_of(request.manifest()), hash_of(request.hash())});
  pump();
}

void Serving::read(ChunkRead answer) {
  SKERRY_CHECK(reading_ > 0, "an answer to a read that nobody asked for");
  --reading_;
  const auto peer = open_.find(answer.peer);
  if (peer != open_.end() && peer->second.erase(answer.request) > 0) {
    Send& send = effects_.sends.emplace_back();
    send.peer = answer.peer;
    pb::ChunkReply& reply = *send.message.mutable_reply();
    reply.set_id(answer.request);
    reply.set_hash(answer.chunk.raw());
    // Whatever the reason, damaged bytes above all: to the peer the chunk is not here.
    reply.set_missing(!answer.bytes.has_value());
    if (answer.bytes) reply.set_data(std::move(*answer.bytes));
  }
  pump();
}

void Serving::disconnected(const PeerId& peer) {
  open_.erase(peer);
  std::erase_if(waiting_, [&](const ReadChunk& read) { return read.peer == peer; });
}

void Serving::pump() {
  while (reading_ < config_.serve_reads && !waiting_.empty()) {
    ++reading_;
    effects_.jobs.emplace_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

}  // namespace skerry::exchange
