// SPDX-License-Identifier: Apache-2.0
// The two networks of the conformance suite, and two ends that record their
// events.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "protocol/testing/fake_transport.h"
#include "protocol/zmq_transport.h"

namespace skerry::protocol {

class TestNetwork {
 public:
  virtual ~TestNetwork() = default;
  // The next server has the same address and key as the one before it.
  virtual std::unique_ptr<ServerTransport> make_server() = 0;
  virtual std::unique_ptr<ClientTransport> make_client(const Identity& identity,
                                                       const std::string& server_key) = 0;

  const Identity coordinator = Identity::generate();
};

class ZmqTestNetwork final : public TestNetwork {
 public:
  std::unique_ptr<ServerTransport> make_server() override {
    auto made = make_zmq_server(coordinator, {.listen = listen_});
    EXPECT_TRUE(made) << made.error().message;
    endpoints_ = (*made)->endpoints();
    const auto port = [](const std::string& url) { return url.substr(url.rfind(':') + 1); };
    listen_ = "127.0.0.1:" + port(endpoints_.enrol) + "," + port(endpoints_.control) + "," +
              port(endpoints_.blob);
    return std::move(*made);
  }
  std::unique_ptr<ClientTransport> make_client(const Identity& identity,
                                               const std::string& server_key) override {
    auto made = make_zmq_client(identity, {endpoints_, server_key});
    EXPECT_TRUE(made) << made.error().message;
    return std::move(*made);
  }

 private:
  std::string listen_ = "127.0.0.1:0";
  Endpoints endpoints_;
};

class FakeTestNetwork final : public TestNetwork {
 public:
  std::unique_ptr<ServerTransport> make_server() override {
    return network.make_server(coordinator);
  }
  std::unique_ptr<ClientTransport> make_client(const Identity& identity,
                                               const std::string& server_key) override {
    return network.make_client(identity, server_key);
  }
  FakeNetwork network{1};
};

struct TestServer {
  explicit TestServer(std::unique_ptr<ServerTransport> made) : transport(std::move(made)) {}
  std::unique_ptr<ServerTransport> transport;
  std::vector<Incoming> incoming;
  std::vector<Closed> closed;
  std::vector<TurnedAway> turned_away;
  bool echo = false;

  void poll(Duration timeout = Duration::zero()) {
    auto polled = transport->poll(timeout, {}, [this](ServerEvent event) {
      if (auto* got = std::get_if<Incoming>(&event)) {
        EXPECT_TRUE(!echo || transport->send(got->connection, got->bytes));
        incoming.push_back(std::move(*got));
      } else if (auto* over = std::get_if<Closed>(&event)) {
        closed.push_back(std::move(*over));
      } else {
        turned_away.push_back(std::get<TurnedAway>(std::move(event)));
      }
    });
    EXPECT_TRUE(polled);
  }
};

struct TestClient {
  explicit TestClient(std::unique_ptr<ClientTransport> made) : transport(std::move(made)) {}
  std::unique_ptr<ClientTransport> transport;
  int opened = 0;
  int lost = 0;
  int refused_key = 0;
  int refused_server = 0;
  std::vector<std::string> received;

  void poll(Duration timeout = Duration::zero()) {
    auto polled = transport->poll(timeout, {}, [this](ClientEvent event) {
      if (std::holds_alternative<Opened>(event)) ++opened;
      if (std::holds_alternative<Lost>(event)) ++lost;
      if (auto* refused = std::get_if<Refused>(&event))
        ++(refused->own_key ? refused_key : refused_server);
      if (auto* got = std::get_if<Received>(&event)) received.push_back(std::move(got->bytes));
    });
    EXPECT_TRUE(polled);
  }
};

// Runs all ends until the event. The time limit only stops hangs.
inline bool until(std::vector<TestServer*> servers, std::vector<TestClient*> clients,
                  const std::function<bool()>& event) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!event()) {
    if (std::chrono::steady_clock::now() > limit) return false;
    for (TestServer* server : servers) server->poll(std::chrono::milliseconds(1));
    for (TestClient* client : clients) client->poll(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace skerry::protocol
