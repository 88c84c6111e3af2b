// SPDX-License-Identifier: Apache-2.0
// Nodes that dial each other, on ZeroMQ over loopback and on the network in
// memory.
#include "protocol/peer_network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "protocol/testing/test_network.h"
#include "protocol/validate.h"

namespace skerry::protocol {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct FakeClock final : Clock {
  Now now() const override { return {boot, 1'000}; }
  Duration boot{};
};

pb::Certificate certificate(const Identity& coordinator, const Identity& of,
                            std::int64_t expires = 2'000) {
  pb::CertificateBody body;
  body.set_ed25519_key(of.ed25519_key());
  body.set_role(pb::ROLE_NODE);
  body.set_name("n");
  body.set_expires_unix_ms(expires);
  return issue_certificate(coordinator, body);
}

// The two kinds of network, as a node sees them.
struct Wires {
  bool real = false;
  FakeNetwork fake{1};

  std::unique_ptr<ServerTransport> server(const Identity& identity) {
    if (!real) return fake.make_server(identity);
    auto made = make_zmq_peer_server(identity, {.listen = "127.0.0.1:0"});
    EXPECT_TRUE(made) << made.error().message;
    return std::move(*made);
  }
  std::unique_ptr<ClientTransport> client(const Identity& identity, const std::string& url,
                                          const std::string& key) {
    if (!real) return fake.make_client(identity, key);
    auto made = make_zmq_peer_client(identity, url, key, nullptr);
    EXPECT_TRUE(made) << made.error().message;
    return std::move(*made);
  }
};

// A node that says its hello where it should, and remembers what it heard.
struct Node {
  Node(Wires& wires, const Clock& clock, const Identity& coordinator, bool listens = true)
      : shown(certificate(coordinator, identity)),
        network({.self = identity.node_id(),
                 .coordinator_key = coordinator.ed25519_key(),
                 .server = listens ? wires.server(identity) : nullptr,
                 .make_client = [this, &wires](const std::string& url, const std::string& key)
                     -> Result<std::unique_ptr<ClientTransport>> {
                   return wires.client(identity, url, key);
                 }},
                clock) {}

  NodeId id() const { return identity.node_id(); }
  void poll() {
    network.poll([this](PeerEvent event) {
      if (const auto* connected = std::get_if<PeerConnected>(&event)) {
        ++connects;
        hello(connected->peer);
      } else if (auto* message = std::get_if<PeerMessage>(&event)) {
        if (message->message.has_request()) requests.push_back(message->message.request().id());
      } else if (std::holds_alternative<PeerGone>(event)) {
        ++gone;
      } else {
        turned_away.push_back(std::get<PeerTurnedAway>(event).why);
      }
    });
  }
  void hello(const NodeId& to) {
    pb::BlobMessage message;
    *message.mutable_hello()->mutable_version() = own_version();
    if (shown) *message.mutable_hello()->mutable_certificate() = *shown;
    if (!greets) return;
    EXPECT_TRUE(network.send(to, message.SerializeAsString()));
  }
  Result<void> ask(const NodeId& of, std::uint64_t id) {
    pb::BlobMessage message;
    message.mutable_request()->set_id(id);
    message.mutable_request()->set_manifest(std::string(32, 'm'));
    message.mutable_request()->set_hash(std::string(32, 'h'));
    return network.send(of, message.SerializeAsString());
  }
  void dial(const Node& other) {
    EXPECT_TRUE(network.dial(other.network.listens_at(), other.identity.ed25519_key()));
  }

  const Identity identity = Identity::generate();
  std::optional<pb::Certificate> shown;
  bool greets = true;
  PeerNetwork network;
  int connects = 0;
  int gone = 0;
  std::vector<std::uint64_t> requests;
  std::vector<std::string> turned_away;
};

class PeerNetworks : public ::testing::TestWithParam<bool> {
 protected:
  bool until(const std::vector<Node*>& nodes, const std::function<bool()>& event) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!event()) {
      if (std::chrono::steady_clock::now() > limit) return false;
      for (Node* node : nodes) node->poll();
      wires.fake.advance(std::chrono::milliseconds(1));
    }
    return true;
  }

  Wires wires{GetParam()};
  FakeClock clock;
  const Identity coordinator = Identity::generate();
  Node a{wires, clock, coordinator};
  Node b{wires, clock, coordinator};
};

TEST_P(PeerNetworks, EitherSideAsksWhoeverDialled) {
  Node behind(wires, clock, coordinator, false);  // no address: it only dials
  EXPECT_EQ(behind.network.listens_at(), "");
  behind.dial(a);
  EXPECT_TRUE(behind.network.is_dialling(a.id()));
  ASSERT_TRUE(until({&a, &behind}, [&] { return a.connects == 1 && behind.connects == 1; }));
  EXPECT_THAT(a.network.connected(), ElementsAre(behind.id()));
  ASSERT_TRUE(behind.ask(a.id(), 1));
  ASSERT_TRUE(a.ask(behind.id(), 2));
  ASSERT_TRUE(
      until({&a, &behind}, [&] { return a.requests.size() == 1 && behind.requests.size() == 1; }));
  EXPECT_EQ(a.requests[0], 1U);
  EXPECT_EQ(behind.requests[0], 2U);
  EXPECT_EQ(b.ask(a.id(), 3).error().code, ErrorCode::kUnavailable);
  behind.network.close(a.id());
  EXPECT_FALSE(behind.network.is_connected(a.id()));
  ASSERT_TRUE(until({&a, &behind}, [&] { return a.gone == 1; }));
  EXPECT_THAT(a.network.connected(), IsEmpty());
}

TEST_P(PeerNetworks, OnlyWhoShowsTheRightCertificateIsHeard) {
  const Identity stranger = Identity::generate();
  const std::vector<std::pair<std::optional<pb::Certificate>, std::string>> wrong = {
      {std::nullopt, "no certificate"},
      {certificate(stranger, b.identity), "not signed by this coordinator"},
      {certificate(coordinator, b.identity, 999), "expired"},
      {certificate(coordinator, stranger), "of another key"}};
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    b.shown = wrong[i].first;
    b.dial(a);
    ASSERT_TRUE(until({&a, &b}, [&] {
      return a.turned_away.size() == i + 1 && !b.network.is_connected(a.id());
    }));
    EXPECT_THAT(a.turned_away.back(), HasSubstr(wrong[i].second));
    EXPECT_EQ(a.connects, 0);
  }
  // Who asks before it says who it is.
  b.greets = false;
  const std::size_t before = a.turned_away.size();
  b.dial(a);
  ASSERT_TRUE(until({&a, &b}, [&] { return b.network.is_connected(a.id()); }));
  ASSERT_TRUE(b.ask(a.id(), 1));
  ASSERT_TRUE(until({&a, &b}, [&] { return a.turned_away.size() > before; }));
  EXPECT_THAT(a.requests, IsEmpty());
}

TEST_P(PeerNetworks, AServerWithoutACertificateIsNotHeard) {
  a.shown = certificate(Identity::generate(), a.identity);
  b.dial(a);
  ASSERT_TRUE(until({&a, &b}, [&] { return b.turned_away.size() == 1; }));
  EXPECT_FALSE(b.network.is_connected(a.id()));
  EXPECT_EQ(b.gone, 1);
}

TEST_P(PeerNetworks, WhoIsShutOutIsClosedAndComesInAgainAfterItsTime) {
  b.dial(a);
  ASSERT_TRUE(until({&a, &b}, [&] { return a.connects == 1; }));
  a.network.shut_out(b.id(), {}, std::chrono::minutes(1));
  EXPECT_FALSE(a.network.is_connected(b.id()));
  ASSERT_TRUE(until({&a, &b}, [&] { return b.gone == 1; }));
  b.dial(a);
  a.dial(b);  // shut out means both ways
  EXPECT_FALSE(a.network.is_dialling(b.id()));
  ASSERT_TRUE(until({&a, &b}, [&] { return !b.network.is_dialling(a.id()); }));
  EXPECT_EQ(a.connects, 1);
  clock.boot = std::chrono::minutes(2);
  b.dial(a);
  ASSERT_TRUE(until({&a, &b}, [&] { return a.connects == 2; }));
}

TEST_P(PeerNetworks, OfTwoThatDialEachOtherOneConnectionStays) {
  a.dial(b);
  b.dial(a);
  const auto talk = [&] {
    return a.network.is_connected(b.id()) && b.network.is_connected(a.id()) && a.ask(b.id(), 7) &&
           b.ask(a.id(), 8);
  };
  ASSERT_TRUE(until({&a, &b}, [&] { return a.connects > 0 && b.connects > 0; }));
  ASSERT_TRUE(
      until({&a, &b}, [&] { return talk() && !a.requests.empty() && !b.requests.empty(); }));
  EXPECT_EQ(a.connects - a.gone, 1);
  EXPECT_EQ(b.connects - b.gone, 1);
}

INSTANTIATE_TEST_SUITE_P(, PeerNetworks, ::testing::Bool(),
                         [](const auto& each) { return each.param ? "Zmq" : "Fake"; });

}  // namespace
}  // namespace skerry::protocol
