// SPDX-License-Identifier: Apache-2.0
#include "protocol/peer_network.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "protocol/validate.h"

namespace skerry::protocol {

Result<pb::CertificateBody> check_admission(const pb::BlobHello& hello,
                                            std::string_view coordinator_key,
                                            std::string_view connection_key,
                                            std::int64_t now_unix_ms) {
  if (!compatible(hello.version())) {
    return fail(ErrorCode::kUnauthorised,
                text("speaks version ", hello.version().major(), ".", hello.version().minor()));
  }
  if (!hello.has_certificate()) return fail(ErrorCode::kUnauthorised, "shows no certificate");
  ASSIGN_OR_RETURN(pb::CertificateBody body,
                   verify_certificate(hello.certificate(), coordinator_key, now_unix_ms));
  if (body.x25519_key() != connection_key) {
    return fail(ErrorCode::kUnauthorised, "shows the certificate of another key");
  }
  return body;
}

PeerNetwork::PeerNetwork(Parts parts, const Clock& clock)
    : parts_(std::move(parts)), clock_(clock) {
  SKERRY_CHECK(parts_.make_client, "a network that cannot dial");
}

Result<void> PeerNetwork::dial(const std::string& url, const std::string& ed25519_key) {
  ASSIGN_OR_RETURN(std::string key, x25519_of(ed25519_key));
  const NodeId peer = node_id(ed25519_key);
  if (peer == parts_.self || links_.contains(peer) || is_shut_out(peer) ||
      count(true) >= kPeersMost)
    return {};
  ASSIGN_OR_RETURN(auto client, parts_.make_client(url, ed25519_key));
  client->dial(Endpoint::kPeer);
  Link& link = links_[peer];
  link.client = std::move(client);
  link.key = std::move(key);
  link.give_up = clock_.now().boot + kDialWithin;
  return {};
}

bool PeerNetwork::is_connected(const NodeId& peer) const {
  const auto found = links_.find(peer);
  return found != links_.end() && found->second.open;
}

bool PeerNetwork::is_dialling(const NodeId& peer) const {
  const auto found = links_.find(peer);
  return found != links_.end() && !found->second.open;
}

std::vector<NodeId> PeerNetwork::connected() const {
  std::vector<NodeId> peers;
  for (const auto& [peer, link] : links_) {
    if (link.open) peers.push_back(peer);
  }
  return peers;
}

std::size_t PeerNetwork::count(bool dialled) const {
  return static_cast<std::size_t>(std::ranges::count_if(
      links_, [&](const auto& each) { return each.second.dialled() == dialled; }));
}

Result<void> PeerNetwork::send(const NodeId& peer, std::string_view bytes) {
  const auto found = links_.find(peer);
  if (found == links_.end() || !found->second.open)
    return fail(ErrorCode::kUnavailable, "not connected");
  Link& link = found->second;
  return link.dialled() ? link.client->send(Endpoint::kPeer, bytes)
                        : parts_.server->send(link.connection, bytes);
}

void PeerNetwork::forget(const NodeId& peer) {
  const auto found = links_.find(peer);
  if (found == links_.end()) return;
  if (!found->second.dialled()) inbound_.erase(found->second.connection.id);
  links_.erase(found);
}

void PeerNetwork::close(const NodeId& peer) {
  const auto found = links_.find(peer);
  if (found == links_.end()) return;
  if (!found->second.dialled()) parts_.server->close(found->second.connection);
  forget(peer);
}

void PeerNetwork::drop(const NodeId& peer, const Handler& handle) {
  const bool was_open = is_connected(peer);
  close(peer);
  if (was_open) handle(PeerGone{peer});
}

// ---- Who stays outside ----

bool PeerNetwork::is_shut_out(const NodeId& peer) const {
  const auto found = shut_out_.find(peer);
  return found != shut_out_.end() && clock_.now().boot < found->second.until;
}

void PeerNetwork::shut_out(const NodeId& peer, const std::string& x25519_key, Duration until) {
  const auto link = links_.find(peer);
  Shut& shut = shut_out_[peer];
  shut.until = std::max(shut.until, until);
  if (!x25519_key.empty()) shut.key = x25519_key;
  if (shut.key.empty() && link != links_.end()) shut.key = link->second.key;
  close(peer);
  while (shut_out_.size() > kShutOutMost) {
    shut_out_.erase(std::ranges::min_element(shut_out_, {},
                                             [](const auto& each) { return each.second.until; }));
  }
  tell_server();
}

void PeerNetwork::let_in_again() {
  const Duration now = clock_.now().boot;
  if (std::erase_if(shut_out_, [&](const auto& each) { return each.second.until <= now; }) > 0)
    tell_server();
}

void PeerNetwork::tell_server() {
  if (!parts_.server) return;
  std::unordered_set<std::string> keys;
  for (const auto& [peer, shut] : shut_out_) {
    if (!shut.key.empty()) keys.insert(shut.key);
  }
  parts_.server->set_refused(std::move(keys));
}

// ---- What comes ----

bool PeerNetwork::poll(const Handler& handle) {
  bool busy = false;
  let_in_again();
  if (parts_.server) {
    std::deque<ServerEvent> events;
    const auto polled = parts_.server->poll(
        Duration::zero(), {}, [&](ServerEvent event) { events.push_back(std::move(event)); });
    busy = polled && !events.empty();
    for (ServerEvent& event : events) on_server(std::move(event), handle);
  }
  std::vector<NodeId> dialled;
  for (const auto& [peer, link] : links_) {
    if (link.dialled()) dialled.push_back(peer);
  }
  const Duration now = clock_.now().boot;
  for (const NodeId& peer : dialled) {
    const auto link = links_.find(peer);
    if (link == links_.end() || !link->second.dialled()) continue;
    std::deque<ClientEvent> events;
    const auto polled = link->second.client->poll(
        Duration::zero(), {}, [&](ClientEvent event) { events.push_back(std::move(event)); });
    busy = busy || (polled && !events.empty());
    const ClientTransport* const client = link->second.client.get();
    for (ClientEvent& event : events) {
      // Drop the remaining messages of a link that was replaced.
      const auto still = links_.find(peer);
      if (still == links_.end() || still->second.client.get() != client) break;
      on_client(peer, std::move(event), handle);
    }
    const auto still = links_.find(peer);
    if (still != links_.end() && still->second.dialled() && !still->second.greeted &&
        now >= still->second.give_up) {
      drop(peer, handle);
    }
  }
  return busy;
}

std::vector<int> PeerNetwork::descriptors() const {
  std::vector<int> all;
  if (parts_.server) all = parts_.server->descriptors();
  for (const auto& [peer, link] : links_) {
    if (!link.dialled()) continue;
    const std::vector<int> own = link.client->descriptors();
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

void PeerNetwork::on_server(ServerEvent event, const Handler& handle) {
  if (auto* message = std::get_if<Incoming>(&event)) {
    const auto known = inbound_.find(message->connection.id);
    if (known == inbound_.end()) return admit(std::move(*message), handle);
    return hear(NodeId(known->second), message->bytes, handle);
  }
  if (const auto* closed = std::get_if<Closed>(&event)) {
    const auto known = inbound_.find(closed->connection.id);
    if (known == inbound_.end()) return;
    const NodeId peer = known->second;
    forget(peer);
    return handle(PeerGone{peer});
  }
  auto& away = std::get<TurnedAway>(event);
  handle(PeerTurnedAway{std::move(away.public_key), std::move(away.address), std::move(away.why)});
}

void PeerNetwork::on_client(const NodeId& peer, ClientEvent event, const Handler& handle) {
  Link& link = links_.at(peer);
  if (std::holds_alternative<Opened>(event)) {
    link.open = true;
    link.give_up = clock_.now().boot + kDialWithin;
    return handle(PeerConnected{peer, true});
  }
  if (const auto* received = std::get_if<Received>(&event))
    return hear(peer, received->bytes, handle);
  // A caller that needs the peer dials it again; its address may have changed
  // by then.
  drop(peer, handle);
}

void PeerNetwork::refuse(const Incoming& message, const std::string& why, const Handler& handle) {
  parts_.server->close(message.connection);
  handle(PeerTurnedAway{message.public_key, message.address, why});
}

// The first message of an incoming connection.
void PeerNetwork::admit(Incoming message, const Handler& handle) {
  Result<pb::BlobMessage> parsed = parse_blob_message(message.bytes);
  if (!parsed) return refuse(message, parsed.error().message, handle);
  if (!parsed->has_hello()) return refuse(message, "its first word was no hello", handle);
  const Result<pb::CertificateBody> body = check_admission(
      parsed->hello(), parts_.coordinator_key, message.public_key, clock_.now().unix_ms);
  if (!body) return refuse(message, body.error().message, handle);
  const NodeId peer = node_id(body->ed25519_key());
  if (is_shut_out(peer)) return refuse(message, "it is shut out", handle);
  if (peer == parts_.self) return refuse(message, "it is this node itself", handle);
  const auto other = links_.find(peer);
  // Keep the open connection that this side dialled if this side's id is the
  // smaller one. The other side decides the same way.
  if (other != links_.end() && other->second.dialled() && other->second.open &&
      parts_.self < peer) {
    parts_.server->close(message.connection);
    return;
  }
  if (other == links_.end() && count(false) >= kPeersMost)
    return refuse(message, "there are too many", handle);
  drop(peer, handle);
  Link& link = links_[peer];
  link.connection = message.connection;
  link.key = message.public_key;
  link.open = link.greeted = true;
  inbound_[message.connection.id] = peer;
  handle(PeerConnected{peer, false});
  if (is_connected(peer)) handle(PeerMessage{peer, std::move(*parsed)});
}

Result<void> PeerNetwork::check_hello(const NodeId& peer, const Link& link,
                                      const pb::BlobMessage& message) const {
  if (!message.has_hello()) return fail(ErrorCode::kInvalid, "its first word was no hello");
  ASSIGN_OR_RETURN(
      const pb::CertificateBody body,
      check_admission(message.hello(), parts_.coordinator_key, link.key, clock_.now().unix_ms));
  if (node_id(body.ed25519_key()) != peer)
    return fail(ErrorCode::kUnauthorised, "it is another node");
  return {};
}

void PeerNetwork::hear(const NodeId& peer, const std::string& bytes, const Handler& handle) {
  Link& link = links_.at(peer);
  Result<pb::BlobMessage> parsed = parse_blob_message(bytes);
  Result<void> good;
  if (!parsed) {
    good = parsed.error();
  } else if (!link.greeted) {
    good = check_hello(peer, link, *parsed);
  }
  if (!good) {
    const std::string key = link.key;
    drop(peer, handle);
    return handle(PeerTurnedAway{key, {}, good.error().message});
  }
  link.greeted = true;
  handle(PeerMessage{peer, std::move(*parsed)});
}

}  // namespace skerry::protocol
