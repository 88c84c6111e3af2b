// SPDX-License-Identifier: Apache-2.0
// The server's and the client's end of the network in memory.
#include <poll.h>

#include <algorithm>

#include "base/text.h"
#include "protocol/limits.h"
#include "protocol/testing/fake_network.h"

namespace skerry::protocol {
namespace {

constexpr int kBurst = 256;
constexpr int kToServer = 0;
constexpr int kToClient = 1;
constexpr Duration kBackoffMost = std::chrono::seconds(2);

// As over a real connection: the sender's queue and the receiver's.
int room_of(Endpoint endpoint) {
  if (endpoint == Endpoint::kEnrol) return 2 * kEnrolQueue;
  return endpoint == Endpoint::kControl ? 2 * kControlQueue : kBlobSendQueue + kBlobReceiveQueue;
}

Result<void> check_send(const FakeLink* link, Endpoint endpoint, int direction,
                        std::string_view bytes) {
  if (bytes.size() > limit_bytes(endpoint)) {
    return fail(ErrorCode::kInvalid,
                text("a message of ", bytes.size(), " bytes is over the limit of ",
                     to_string(endpoint), ", ", limit_bytes(endpoint)));
  }
  if (link == nullptr) return fail(ErrorCode::kUnavailable, "not connected");
  if (link->waiting[direction] >= room_of(endpoint))
    return fail(ErrorCode::kExhausted, "the queue is full");
  return {};
}

std::vector<int> readable_now(std::span<const int> descriptors) {
  std::vector<int> ready;
  for (const int fd : descriptors) {
    pollfd item{fd, POLLIN, 0};
    if (::poll(&item, 1, 0) > 0) ready.push_back(fd);
  }
  return ready;
}

}  // namespace

FakeServer::FakeServer(std::shared_ptr<FakeNetwork::State> network, const Identity& identity)
    : network_(std::move(network)),
      key_(identity.x25519_key()),
      endpoints_{"tcp://fake:1", "tcp://fake:2", "tcp://fake:3", "tcp://fake:4"} {
  network_->servers[key_] = this;
}

FakeServer::~FakeServer() {
  if (network_->server_of(key_) == this) network_->servers.erase(key_);
  network_->end_all([this](const FakeLink& link) { return link.server == this; });
}

bool FakeServer::is_allowed(Endpoint endpoint, const std::string& key) const {
  if (endpoint == Endpoint::kPeer) return !refused_.contains(key);
  return endpoint == Endpoint::kEnrol || allowed_.contains(key);
}

void FakeServer::set_allowed(std::unordered_set<std::string> keys) {
  allowed_ = std::move(keys);
  throw_out_unwanted();
}

void FakeServer::set_refused(std::unordered_set<std::string> keys) {
  refused_ = std::move(keys);
  throw_out_unwanted();
}

void FakeServer::throw_out_unwanted() {
  std::erase_if(events_, [this](const ServerEvent& event) {
    const auto* incoming = std::get_if<Incoming>(&event);
    return incoming != nullptr && !is_allowed(incoming->connection.endpoint, incoming->public_key);
  });
  network_->end_all([this](const FakeLink& link) {
    return link.server == this && !is_allowed(link.connection.endpoint, link.public_key);
  });
}

Result<void> FakeServer::send(const Connection& connection, std::string_view bytes) {
  TRY(check_send(network_->link(connection.id), connection.endpoint, kToClient, bytes));
  network_->carry(connection.id, kToClient, std::string(bytes));
  return {};
}

Result<std::vector<int>> FakeServer::poll(Duration timeout, std::span<const int> readable,
                                          const Handler& handle) {
  std::vector<int> ready = readable_now(readable);
  network_->pass(ready.empty() ? timeout : Duration::zero(), [this] { return !events_.empty(); });
  for (int i = 0; i < kBurst && !events_.empty(); ++i) {
    ServerEvent event = std::move(events_.front());
    events_.pop_front();
    if (const auto* incoming = std::get_if<Incoming>(&event)) {
      if (FakeLink* link = network_->link(incoming->connection.id)) --link->waiting[kToServer];
    }
    handle(std::move(event));
  }
  return ready;
}

FakeClient::FakeClient(std::shared_ptr<FakeNetwork::State> network, const Identity& identity,
                       const std::string& server_key)
    : network_(std::move(network)), key_(identity.x25519_key()), server_key_(server_key) {}

FakeClient::~FakeClient() {
  *alive_ = false;
  for (const Endpoint endpoint : kAllEndpoints) hang_up(endpoint);
  hang_up(Endpoint::kPeer);
}

void FakeClient::dial(Endpoint endpoint) {
  if (of(endpoint)) return;
  of(endpoint) = Dialled();
  dial_later(endpoint, network_->delay());
}

void FakeClient::hang_up(Endpoint endpoint) {
  if (!of(endpoint)) return;
  const std::string id = of(endpoint)->link;
  of(endpoint).reset();
  network_->end(id);
  std::erase_if(events_, [&](const auto& entry) {
    return std::visit([&](const auto& event) { return event.endpoint == endpoint; }, entry.second);
  });
}

void FakeClient::dial_later(Endpoint endpoint, Duration after) {
  const std::uint64_t number = of(endpoint)->attempt = ++attempts_;
  network_->at(network_->now + after, [this, alive = alive_, endpoint, number] {
    if (*alive && of(endpoint) && of(endpoint)->attempt == number) attempt(endpoint);
  });
}

void FakeClient::attempt(Endpoint endpoint) {
  Dialled& dialled = *of(endpoint);
  FakeServer* server = network_->server_of(server_key_);
  const bool reachable = !network_->servers.empty() && !network_->cut.contains(key_);
  if (reachable && server != nullptr && server->is_allowed(endpoint, key_)) {
    dialled.link = network_->open(*server, *this, endpoint, key_).connection.id;
    dialled.backoff = std::chrono::milliseconds(100);
    events_.emplace_back(dialled.link, Opened{endpoint});
    return;
  }
  if (reachable) events_.emplace_back("", Refused{endpoint, server != nullptr});
  const double spread = 0.5 + network_->random.uniform();
  dial_later(endpoint, std::chrono::duration_cast<Duration>(dialled.backoff * spread));
  dialled.backoff = std::min(2 * dialled.backoff, kBackoffMost);
}

Result<void> FakeClient::send(Endpoint endpoint, std::string_view bytes) {
  FakeLink* link = of(endpoint) ? network_->link(of(endpoint)->link) : nullptr;
  TRY(check_send(link, endpoint, kToServer, bytes));
  network_->carry(link->connection.id, kToServer, std::string(bytes));
  return {};
}

void FakeClient::take(const FakeLink& link, std::string bytes) {
  events_.emplace_back(link.connection.id, Received{link.connection.endpoint, std::move(bytes)});
}

void FakeClient::on_lost(const FakeLink& link) {
  const Endpoint endpoint = link.connection.endpoint;
  if (!of(endpoint) || of(endpoint)->link != link.connection.id) return;
  of(endpoint)->link.clear();
  events_.emplace_back("", Lost{endpoint});
  dial_later(endpoint, std::chrono::duration_cast<Duration>(of(endpoint)->backoff *
                                                            (1 + network_->random.uniform())));
}

Result<std::vector<int>> FakeClient::poll(Duration timeout, std::span<const int> readable,
                                          const Handler& handle) {
  std::vector<int> ready = readable_now(readable);
  network_->pass(ready.empty() ? timeout : Duration::zero(), [this] { return !events_.empty(); });
  for (int i = 0; i < kBurst && !events_.empty(); ++i) {
    auto [id, event] = std::move(events_.front());
    events_.pop_front();
    if (std::holds_alternative<Received>(event)) {
      if (FakeLink* link = network_->link(id)) --link->waiting[kToClient];
    }
    handle(std::move(event));
  }
  return ready;
}

}  // namespace skerry::protocol
