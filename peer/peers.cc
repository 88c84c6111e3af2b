// SPDX-License-Identifier: Apache-2.0
#include "peer/peers.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "protocol/validate.h"
#include "protocol/validate_gossip.h"

namespace skerry::peer {
namespace {

constexpr Duration kResend = std::chrono::milliseconds(2);
constexpr Duration kIdle = std::chrono::hours(1);

}  // namespace

Peers::Peers(Parts parts, const exchange::Config& config, Owner& owner)
    : parts_(parts), owner_(owner), exchange_(config) {}

void Peers::connected(const NodeId& peer, bool dialled, bool gossips) {
  exchange_.connected(peer, now());
  moved_at_[peer] = now().boot;
  ungreeted_[peer] = dialled;
  carry_out();
  if (gossips) start_gossip(peer);
}

// Nothing, if the peer was disconnected meanwhile.
void Peers::start_gossip(const NodeId& peer) {
  const auto ungreeted = ungreeted_.extract(peer);
  if (!ungreeted || parts_.gossip == nullptr) return;
  parts_.gossip->connected(peer, ungreeted.mapped(), now());
  carry_out_gossip();
}

void Peers::disconnected(const NodeId& peer) {
  unsent_.drop(peer);
  ungreeted_.erase(peer);
  moved_at_.erase(peer);
  exchange_.disconnected(peer, now());
  if (parts_.gossip != nullptr) parts_.gossip->disconnected(peer);
  carry_out();
}

void Peers::received(const NodeId& peer, pb::BlobMessage message) {
  if (message.has_gossip()) return hear(peer, message.gossip());
  moved_at_[peer] = now().boot;
  const bool gossips = message.has_hello() && protocol::knows_gossip(message.hello().version());
  exchange_.received(peer, std::move(message), now());
  carry_out();
  if (gossips) start_gossip(peer);
}

void Peers::hear(const NodeId& peer, const std::string& bytes) {
  if (parts_.gossip == nullptr) return;
  const Result<pb::GossipMessage> message = protocol::parse_gossip_message(bytes);
  if (message) {
    parts_.gossip->received(peer, *message, now());
    return carry_out_gossip();
  }
  gossip::Effects effects;
  effects.misbehaved.push_back({peer, message.error().message});
  owner_.gossiped(effects);
}

void Peers::fetch(const exchange::Want& want) {
  exchange_.fetch(want, now());
  carry_out();
}

void Peers::cancel(const Hash& object) {
  exchange_.cancel(object, now());
  carry_out();
}

void Peers::serve_only(std::vector<Hash> objects) {
  exchange_.serve_only(std::move(objects), now());
  carry_out();
}

void Peers::tick() {
  const Now at = now();
  if (exchange_.wake_at().value_or(Duration::max()) <= at.boot) {
    exchange_.tick(at);
    carry_out();
  }
  if (parts_.gossip != nullptr && parts_.gossip->wake_at() <= at.boot) {
    parts_.gossip->tick(at);
    carry_out_gossip();
  }
  flush();
}

Duration Peers::wake_at() const {
  const Duration at = now().boot;
  if (is_blocked()) return at + kResend;
  const Duration exchange = exchange_.wake_at().value_or(at + kIdle);
  return parts_.gossip == nullptr ? exchange : std::min(exchange, parts_.gossip->wake_at());
}

void Peers::carry_out() {
  if (!exchange_.has_effects()) return;
  exchange::Effects effects = exchange_.take_effects();
  for (exchange::Job& job : std::exchange(effects.jobs, {})) run(std::move(job));
  for (exchange::Send& send : std::exchange(effects.sends, {})) {
    if (send.message.has_hello() && parts_.certificate != nullptr)
      *send.message.mutable_hello()->mutable_certificate() = *parts_.certificate;
    unsent_.push(send.peer, send.message.SerializeAsString());
  }
  flush();
  owner_.exchanged(effects);
}

void Peers::carry_out_gossip() {
  gossip::Effects effects = parts_.gossip->take_effects();
  for (const gossip::Send& send : std::exchange(effects.sends, {})) {
    if (unsent_.has(send.peer)) continue;  // behind chunks it would come late
    pb::BlobMessage message;
    message.set_gossip(send.message.SerializeAsString());
    [[maybe_unused]] const Result<void> sent = owner_.send(send.peer, message.SerializeAsString());
  }
  owner_.gossiped(effects);
}

void Peers::run(exchange::Job job) {
  std::optional<exchange::Answer> at_once = owner_.answer(job);
  if (!at_once && parts_.chunks == nullptr)
    at_once = exchange::refuse(job, fail(ErrorCode::kNotFound, "nothing is offered here"));
  if (at_once) {
    exchange_.answered(std::move(*at_once), now());
    return carry_out();
  }
  parts_.worker.run([this, chunks = parts_.chunks, job = std::move(job)]() -> Done {
    auto answer = std::make_shared<exchange::Answer>(exchange::perform(*chunks, job));
    return [this, answer] {
      if (!owner_.answered(*answer)) return;
      exchange_.answered(std::move(*answer), now());
      carry_out();
    };
  });
}

void Peers::flush() {
  unsent_.flush([this](const NodeId& peer, std::string_view bytes) {
    Result<void> sent = owner_.send(peer, bytes);
    if (sent) moved_at_[peer] = now().boot;
    return sent;
  });
}

Duration Peers::moved_at(const NodeId& peer) const {
  const auto found = moved_at_.find(peer);
  return found == moved_at_.end() ? Duration::min() : found->second;
}

}  // namespace skerry::peer
