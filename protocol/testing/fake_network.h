// SPDX-License-Identifier: Apache-2.0
// The parts of fake_transport.cc: the state that all ends share, and the two
// ends. Private to this folder.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "protocol/testing/fake_transport.h"

namespace skerry::protocol {

class FakeServer;
class FakeClient;

// One open connection. It ends at both ends at the same virtual time.
struct FakeLink {
  Connection connection;
  std::string public_key;
  FakeServer* server = nullptr;
  FakeClient* client = nullptr;
  bool named = false;  // the server has received a message on it
  // messages under way or unread: to the server, to the client
  std::array<int, 2> waiting{};
  std::array<Duration, 2> last{};  // when the latest in order is due
};

struct FakeNetwork::State {
  explicit State(std::uint64_t seed) : random({.seed = seed, .purpose = Purpose::kSimulation}) {}

  void at(Duration due, std::function<void()> action);
  void run_due();
  // Runs what is due. If nothing was due, lets the other side run and advances
  // time, by `timeout` at most.
  void pass(Duration timeout, const std::function<bool()>& satisfied);
  Duration delay();
  bool chance(double probability) { return probability > 0 && random.uniform() < probability; }

  FakeLink* link(const std::string& id);
  FakeLink& open(FakeServer& server, FakeClient& client, Endpoint endpoint,
                 const std::string& public_key);
  void end(const std::string& id);  // tells both ends
  void end_all(const std::function<bool(const FakeLink&)>& which);
  void carry(const std::string& id, int direction, std::string bytes);
  void arrive(const std::string& id, int direction, const std::string& bytes);
  FakeServer* server_of(const std::string& key) const;

  Stream random;
  Faults faults;
  Duration now{};
  std::uint64_t events_made = 0;
  std::uint64_t links_made = 0;
  std::map<std::pair<Duration, std::uint64_t>, std::function<void()>> events;
  std::map<std::string, FakeLink> links;
  std::map<std::string, FakeServer*> servers;  // by X25519 key
  std::unordered_set<std::string> cut;
  std::function<void()> background;
  bool in_background = false;
};

class FakeServer final : public ServerTransport {
 public:
  FakeServer(std::shared_ptr<FakeNetwork::State> network, const Identity& identity);
  ~FakeServer() override;

  const Endpoints& endpoints() const override { return endpoints_; }
  void set_allowed(std::unordered_set<std::string> keys) override;
  void allow(const std::string& key) override { allowed_.insert(key); }
  void set_refused(std::unordered_set<std::string> keys) override;
  Result<void> send(const Connection& connection, std::string_view bytes) override;
  void close(const Connection& connection) override { network_->end(connection.id); }
  Result<std::vector<int>> poll(Duration timeout, std::span<const int> readable,
                                const Handler& handle) override;

  bool is_allowed(Endpoint endpoint, const std::string& key) const;
  void take(ServerEvent event) { events_.push_back(std::move(event)); }
  const std::string& key() const { return key_; }

 private:
  void throw_out_unwanted();

  std::shared_ptr<FakeNetwork::State> network_;
  const std::string key_;
  const Endpoints endpoints_;
  std::unordered_set<std::string> allowed_;
  std::unordered_set<std::string> refused_;  // at peer
  std::deque<ServerEvent> events_;
};

class FakeClient final : public ClientTransport {
 public:
  FakeClient(std::shared_ptr<FakeNetwork::State> network, const Identity& identity,
             const std::string& server_key);
  ~FakeClient() override;

  void dial(Endpoint endpoint) override;
  void hang_up(Endpoint endpoint) override;
  Result<void> send(Endpoint endpoint, std::string_view bytes) override;
  Result<std::vector<int>> poll(Duration timeout, std::span<const int> readable,
                                const Handler& handle) override;

  void take(const FakeLink& link, std::string bytes);
  void on_lost(const FakeLink& link);

 private:
  struct Dialled {
    std::uint64_t attempt = 0;  // events of an older attempt are ignored
    std::string link;           // empty: not open
    Duration backoff = std::chrono::milliseconds(100);
  };
  std::optional<Dialled>& of(Endpoint endpoint) {
    return dialled_[static_cast<std::size_t>(endpoint)];
  }
  void dial_later(Endpoint endpoint, Duration after);
  void attempt(Endpoint endpoint);

  std::shared_ptr<FakeNetwork::State> network_;
  const std::string key_;
  const std::string server_key_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::uint64_t attempts_ = 0;
  std::array<std::optional<Dialled>, kEndpointCount + 1> dialled_;
  std::deque<std::pair<std::string, ClientEvent>> events_;  // with the link that carried them
};

}  // namespace skerry::protocol
