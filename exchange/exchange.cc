// SPDX-License-Identifier: Apache-2.0
#include "exchange/exchange.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "protocol/limits.h"
#include "protocol/validate.h"

namespace skerry::exchange {

static_assert(storage::kMaxChunkBytes == protocol::kChunkBytes, "a chunk fits into a message");

Exchange::Exchange(const Config& config)
    : config_(config),
      availability_(config_, effects_),
      fetching_(config_, effects_, availability_),
      serving_(config_, effects_) {}

void Exchange::connected(const PeerId& peer, Now now) {
  if (peers_.contains(peer)) disconnected(peer, now);
  peers_[peer] = PeerPhase::kNew;
  Send& send = effects_.sends.emplace_back();
  send.peer = peer;
  pb::BlobHello& hello = *send.message.mutable_hello();
  *hello.mutable_version() = protocol::own_version();
  hello.set_incarnation(config_.incarnation);
  hello.set_maps(true);
}

void Exchange::disconnected(const PeerId& peer, Now now) {
  if (peers_.erase(peer) == 0) return;
  serving_.disconnected(peer, now);
  availability_.disconnected(peer);
  fetching_.peer_gone(peer, now);
}

void Exchange::greeted(const PeerId& peer, const pb::BlobHello& hello, Now now) {
  if (!protocol::compatible(hello.version())) {
    peers_[peer] = PeerPhase::kRefused;
    effects_.misbehaved.push_back(
        {peer, {}, text("speaks version ", hello.version().major(), ".", hello.version().minor())});
    return;
  }
  peers_[peer] = PeerPhase::kReady;
  fetching_.peer_ready(peer, {hello.incarnation(), hello.maps()}, now);
}

void Exchange::received(const PeerId& peer, pb::BlobMessage message, Now now) {
  const auto known = peers_.find(peer);
  if (known == peers_.end()) return;
  if (message.has_hello()) {
    if (known->second == PeerPhase::kNew) greeted(peer, message.hello(), now);
    return;
  }
  if (known->second != PeerPhase::kReady) return;
  if (message.has_request()) serving_.requested(peer, message.request(), now);
  if (message.has_reply()) fetching_.replied(peer, std::move(*message.mutable_reply()), now);
  if (message.has_map()) fetching_.mapped(peer, message.map(), now);
  if (message.has_map_request()) {
    const auto object = Hash::from_raw(message.map_request().manifest());
    SKERRY_CHECK(object.has_value(), "a message that was not validated");
    asked_for_map(peer, *object, now);
  }
}

void Exchange::asked_for_map(const PeerId& peer, const Hash& object, Now now) {
  if (const ChunkSet* held = fetching_.held(object)) {
    availability_.tell(peer, object, *held);
    fetching_.wanted_too(peer, object, now);
  } else {
    availability_.find(peer, object);
  }
}

void Exchange::fetch(const Want& want, Now now) { fetching_.fetch(want, now); }

void Exchange::cancel(const Hash& object, Now now) { fetching_.cancel(object, now); }

void Exchange::answered(Answer answer, Now now) {
  if (auto* opened = std::get_if<ObjectOpened>(&answer)) fetching_.opened(std::move(*opened), now);
  if (const auto* written = std::get_if<ChunkWritten>(&answer)) fetching_.written(*written, now);
  if (const auto* sealed = std::get_if<ObjectSealed>(&answer)) fetching_.sealed(*sealed);
  if (auto* read = std::get_if<ChunkRead>(&answer)) serving_.read(std::move(*read), now);
  if (const auto* found = std::get_if<ObjectFound>(&answer)) {
    availability_.found(*found, fetching_.held(found->object));
  }
}

void Exchange::tick(Now now) {
  serving_.tick(now);
  fetching_.tick(now);
  availability_.tick(now);
}

std::optional<Duration> Exchange::wake_at() const {
  std::optional<Duration> wake;
  for (const std::optional<Duration>& at :
       {serving_.wake_at(), fetching_.wake_at(), availability_.wake_at()}) {
    if (at) wake = wake ? std::min(*wake, *at) : *at;
  }
  return wake;
}

bool Exchange::has_effects() const {
  return !(effects_.jobs.empty() && effects_.sends.empty() && effects_.progress.empty() &&
           effects_.completed.empty() && effects_.failed.empty() && effects_.misbehaved.empty() &&
           effects_.stalled.empty());
}

Effects Exchange::take_effects() { return std::exchange(effects_, {}); }

}  // namespace skerry::exchange
