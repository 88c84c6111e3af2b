// SPDX-License-Identifier: Apache-2.0
// The server's side of the transport. See zmq_transport.h.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "protocol/connection_guard.h"
#include "protocol/peer_table.h"
#include "protocol/zap.h"
#include "protocol/zmq_socket.h"
#include "protocol/zmq_transport.h"

namespace skerry::protocol {

class ZmqServer final : public ServerTransport {
 public:
  static Result<std::unique_ptr<ServerTransport>> make(const Identity& identity,
                                                       const ServerOptions& options);
  static Result<std::unique_ptr<ServerTransport>> make_for_peers(const Identity& identity,
                                                                 const ServerOptions& options);
  ~ZmqServer() override;

  const Endpoints& endpoints() const override { return endpoints_; }
  void set_allowed(std::unordered_set<std::string> keys) override;
  void allow(const std::string& key) override { allowed_.insert(key); }
  void set_refused(std::unordered_set<std::string> keys) override;
  Result<void> send(const Connection& connection, std::string_view bytes) override;
  void close(const Connection& connection) override;
  Result<std::vector<int>> poll(Duration timeout, std::span<const int> readable,
                                const Handler& handle) override;
  std::vector<int> descriptors() const override;

 private:
  struct Port {
    Endpoint endpoint;
    ZmqSocket router;
    ZmqMonitor monitor;
    PeerTable peers;
    ConnectionGuard guard;  // at enrol, every connection stays a stranger
    std::uint16_t number = 0;
  };
  ZmqServer(std::shared_ptr<void> context, ZmqSocket zap);
  static Result<std::unique_ptr<ZmqServer>> open(const Identity& identity,
                                                 std::span<const Endpoint> endpoints,
                                                 std::size_t connections);
  Result<void> open_port(Endpoint endpoint, const Identity& identity, std::size_t connections);

  Port& port_of(Endpoint endpoint);
  bool is_allowed(Endpoint endpoint, const std::string& key) const;
  Result<std::vector<int>> wait(Duration timeout, std::span<const int> readable);
  bool may_enter(std::string_view domain, std::string_view key, std::string_view address);
  void check_connections();
  void end(Port& port, const Offender& offender);
  void tell(const Port& port, const Offender& offender);
  void drain_monitor(Port& port);
  void receive_some(Port& port, const Handler& handle);
  bool receive_one(Port& port);
  void accept_message(Port& port, Peer peer, std::string address, std::string bytes);
  void announce(const Port& port, const std::vector<Peer>& over);
  void deliver(const Handler& handle);
  void throw_out(Port& port, const Peer& peer);
  void throw_out_unwanted();

  std::shared_ptr<void> context_;
  ZapHandler zap_;
  std::vector<std::unique_ptr<Port>> ports_;
  Endpoints endpoints_;
  std::unordered_set<std::string> allowed_;
  std::unordered_set<std::string> refused_;  // at peer
  std::deque<ServerEvent> events_;
  SystemClock clock_;
  Duration next_check_{};
};

}  // namespace skerry::protocol
