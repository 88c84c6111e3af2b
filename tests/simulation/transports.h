// SPDX-License-Identifier: Apache-2.0
// The seams between hosts and network, over the simulated network: what comes
// is handed over at once, and poll() has nothing to wait for.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <unordered_set>

#include "protocol/transport.h"
#include "tests/simulation/network.h"

namespace skerry::simulation {

// The coordinator's end. Its destruction is the process's end.
class ServerEnd final : public protocol::ServerTransport, public NetworkServer {
 public:
  using Handle = std::function<void(protocol::ServerEvent)>;
  ServerEnd(Network& network, Handle handle);
  ~ServerEnd() override;
  std::size_t blob_connections() const { return blobs_.size(); }

  // protocol::ServerTransport
  const protocol::Endpoints& endpoints() const override { return endpoints_; }
  void set_allowed(std::unordered_set<std::string> keys) override;
  void allow(const std::string& key) override { allowed_.insert(key); }
  void set_refused(std::unordered_set<std::string>) override {}
  Result<void> send(const protocol::Connection& connection, std::string_view bytes) override;
  void close(const protocol::Connection& connection) override;
  Result<std::vector<int>> poll(Duration, std::span<const int>, const Handler&) override {
    return std::vector<int>();
  }
  // NetworkServer
  bool admits(Endpoint endpoint, const std::string& key) const override {
    return endpoint == Endpoint::kEnrol || allowed_.contains(key);
  }
  void received(const ConnectionId& connection, Endpoint endpoint, const std::string& key,
                const std::string& bytes) override;
  void closed(const ConnectionId& connection, Endpoint endpoint, const std::string& key) override;

 private:
  Network& network_;
  Handle handle_;
  const protocol::Endpoints endpoints_{"tcp://fake:1", "tcp://fake:2", "tcp://fake:3",
                                       "tcp://fake:4"};
  std::unordered_set<std::string> allowed_;
  std::set<ConnectionId> blobs_;
};

// A node's or a person's end.
class ClientEnd final : public protocol::ClientTransport, public NetworkClient {
 public:
  using Handle = std::function<void(protocol::ClientEvent)>;
  ClientEnd(Network& network, std::string address, std::string key, Handle handle)
      : network_(network),
        address_(std::move(address)),
        key_(std::move(key)),
        handle_(std::move(handle)) {}
  ~ClientEnd() override { network_.hang_up(address_, silent_); }
  // The server is not told of its end.
  void vanishes() { silent_ = true; }
  bool is_open(Endpoint endpoint) const { return open_.contains(endpoint); }

  // protocol::ClientTransport
  void dial(Endpoint endpoint) override { network_.dial(address_, endpoint, key_, *this); }
  void hang_up(Endpoint endpoint) override;
  Result<void> send(Endpoint endpoint, std::string_view bytes) override;
  Result<std::vector<int>> poll(Duration, std::span<const int>, const Handler&) override {
    return std::vector<int>();
  }
  // NetworkClient
  void opened(Endpoint endpoint) override;
  void lost(Endpoint endpoint) override;
  void refused(Endpoint endpoint) override { handle_(protocol::Refused{endpoint, true}); }
  void received(Endpoint endpoint, const std::string& bytes) override {
    handle_(protocol::Received{endpoint, bytes});
  }

 private:
  Network& network_;
  std::string address_;
  std::string key_;
  Handle handle_;
  bool silent_ = false;
  std::set<Endpoint> open_;
};

}  // namespace skerry::simulation
