// SPDX-License-Identifier: Apache-2.0
// What every transport promises, on ZeroMQ over loopback and on the network in
// memory.
#include "protocol/transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <set>

#include "base/unique_fd.h"
#include "protocol/limits.h"
#include "protocol/testing/test_network.h"

namespace skerry::protocol {
namespace {

using Make = std::unique_ptr<TestNetwork> (*)();

struct Transports : ::testing::TestWithParam<Make> {
  std::unique_ptr<TestNetwork> network = GetParam()();
  const Identity ada = Identity::generate();
  const Identity bob = Identity::generate();
  TestServer server{network->make_server()};

  TestClient client(const Identity& identity) {
    return TestClient(network->make_client(identity, network->coordinator.ed25519_key()));
  }
  void allow(const std::vector<const Identity*>& identities) {
    std::unordered_set<std::string> keys;
    for (const Identity* identity : identities) keys.insert(identity->x25519_key());
    server.transport->set_allowed(std::move(keys));
  }
  TestClient open(const Identity& identity, Endpoint endpoint) {
    TestClient made = client(identity);
    made.transport->dial(endpoint);
    EXPECT_TRUE(until({&server}, {&made}, [&] { return made.opened == 1; }));
    return made;
  }
  // Opens and lets the server learn of it by a message.
  TestClient introduce(const Identity& identity, Endpoint endpoint) {
    TestClient made = open(identity, endpoint);
    const std::size_t before = server.incoming.size();
    EXPECT_TRUE(made.transport->send(endpoint, "hello"));
    EXPECT_TRUE(until({&server}, {&made}, [&] { return server.incoming.size() == before + 1; }));
    return made;
  }
};

TEST_P(Transports, RequestsAndRepliesOnEveryEndpoint) {
  allow({&ada});
  server.echo = true;
  TestClient a = client(ada);
  for (const Endpoint endpoint : kAllEndpoints) a.transport->dial(endpoint);
  ASSERT_TRUE(until({&server}, {&a}, [&] { return a.opened == 3; }));
  for (const Endpoint endpoint : kAllEndpoints)
    ASSERT_TRUE(a.transport->send(endpoint, to_string(endpoint)));
  ASSERT_TRUE(until({&server}, {&a}, [&] { return a.received.size() == 3; }));
  EXPECT_THAT(a.received, ::testing::UnorderedElementsAre("enrol", "control", "blob"));
  for (const Incoming& message : server.incoming) {
    EXPECT_EQ(message.bytes, to_string(message.connection.endpoint));
    EXPECT_EQ(message.public_key, ada.x25519_key());
  }
}

TEST_P(Transports, MessagesOfOneConnectionKeepTheirOrderAndBytes) {
  allow({&ada});
  TestClient a = open(ada, Endpoint::kControl);
  std::vector<std::string> sent;
  for (int i = 0; i < 20; ++i) {
    sent.push_back(std::string(1000 * i, static_cast<char>(i)) + '\0' + std::to_string(i));
    ASSERT_TRUE(a.transport->send(Endpoint::kControl, sent.back()));
  }
  ASSERT_TRUE(until({&server}, {&a}, [&] { return server.incoming.size() == sent.size(); }));
  for (std::size_t i = 0; i < sent.size(); ++i) EXPECT_EQ(server.incoming[i].bytes, sent[i]);
}

TEST_P(Transports, LargestMessagesPassAndLargerAreRefused) {
  allow({&ada});
  server.echo = true;
  for (const Endpoint endpoint : kAllEndpoints) {
    TestClient a = open(ada, endpoint);
    const std::string largest(limit_bytes(endpoint), 'x');
    EXPECT_EQ(a.transport->send(endpoint, largest + "y").error().code, ErrorCode::kInvalid);
    ASSERT_TRUE(a.transport->send(endpoint, largest));
    ASSERT_TRUE(until({&server}, {&a}, [&] { return a.received.size() == 1; }));
    EXPECT_TRUE(a.received[0] == largest);
    EXPECT_EQ(server.transport->send(server.incoming.back().connection, largest + "y").error().code,
              ErrorCode::kInvalid);
  }
}

TEST_P(Transports, UnknownKeysMayOnlyEnrol) {
  TestClient a = client(ada);
  a.transport->dial(Endpoint::kControl);
  ASSERT_TRUE(
      until({&server}, {&a}, [&] { return a.refused_key == 2; }));  // it tries again by itself
  EXPECT_EQ(a.opened, 0);
  EXPECT_EQ(a.transport->send(Endpoint::kControl, "x").error().code, ErrorCode::kUnavailable);
  TestClient b = introduce(bob, Endpoint::kEnrol);
  EXPECT_EQ(server.incoming.back().public_key, bob.x25519_key());
  // Enrolled in between: the next attempt succeeds.
  server.transport->allow(ada.x25519_key());
  EXPECT_TRUE(until({&server}, {&a}, [&] { return a.opened == 1; }));
}

TEST_P(Transports, AForeignServerIsNotTalkedTo) {
  TestClient a(network->make_client(ada, bob.ed25519_key()));
  a.transport->dial(Endpoint::kEnrol);
  ASSERT_TRUE(until({&server}, {&a}, [&] { return a.refused_server == 1; }));
  EXPECT_EQ(a.opened, 0);
}

TEST_P(Transports, AClosedConnectionNamesItsPeer) {
  allow({&ada, &bob});
  TestClient a = introduce(ada, Endpoint::kControl);
  TestClient b = introduce(bob, Endpoint::kControl);
  const Connection of_a = server.incoming[0].connection;
  a.transport.reset();
  ASSERT_TRUE(until({&server}, {&b}, [&] { return !server.closed.empty(); }));
  EXPECT_EQ(server.closed[0].public_key, ada.x25519_key());
  EXPECT_EQ(server.closed[0].connection, of_a);
  EXPECT_EQ(server.closed.size(), 1u);
  EXPECT_EQ(b.lost, 0);
}

TEST_P(Transports, HangingUpIsSeenByTheServerOnly) {
  allow({&ada});
  TestClient a = introduce(ada, Endpoint::kControl);
  a.transport->hang_up(Endpoint::kControl);
  ASSERT_TRUE(until({&server}, {&a}, [&] { return server.closed.size() == 1; }));
  EXPECT_EQ(a.lost, 0);
  a.transport->dial(Endpoint::kControl);
  ASSERT_TRUE(until({&server}, {&a}, [&] { return a.opened == 2; }));
}

TEST_P(Transports, AReconnectedPeerIsAnotherConnection) {
  allow({&ada});
  TestClient a = introduce(ada, Endpoint::kControl);
  const Connection first = server.incoming[0].connection;
  server.transport->close(first);
  ASSERT_TRUE(until({&server}, {&a},
                    [&] { return a.lost == 1 && a.opened == 2 && server.closed.size() == 1; }));
  EXPECT_EQ(server.transport->send(first, "x").error().code, ErrorCode::kUnavailable);
  ASSERT_TRUE(a.transport->send(Endpoint::kControl, "again"));
  ASSERT_TRUE(until({&server}, {&a}, [&] { return server.incoming.size() == 2; }));
  EXPECT_NE(server.incoming[1].connection, first);
  EXPECT_EQ(server.incoming[1].public_key, ada.x25519_key());
  EXPECT_EQ(server.closed.size(), 1u);
}

TEST_P(Transports, ARevokedKeyIsThrownOutAndStaysOut) {
  allow({&ada, &bob});
  TestClient a = introduce(ada, Endpoint::kControl);
  TestClient b = introduce(bob, Endpoint::kControl);
  // What it has sent already, read or not, is not delivered after the
  // revocation.
  ASSERT_TRUE(a.transport->send(Endpoint::kControl, "too late"));
  allow({&bob});
  ASSERT_TRUE(until({&server}, {&a, &b}, [&] { return a.lost == 1 && a.refused_key > 0; }));
  ASSERT_EQ(server.closed.size(), 1u);
  EXPECT_EQ(server.closed[0].public_key, ada.x25519_key());
  EXPECT_EQ(server.incoming.size(), 2u);
  EXPECT_EQ(a.opened, 1);
  EXPECT_EQ(b.lost, 0);
}

TEST_P(Transports, ARevokedKeyThatNeverSpokeIsNotHeard) {
  allow({&ada});
  TestClient a = open(ada, Endpoint::kBlob);
  allow({});
  ASSERT_TRUE(a.transport->send(Endpoint::kBlob, "x") || true);
  ASSERT_TRUE(until({&server}, {&a}, [&] { return a.lost == 1; }));
  EXPECT_TRUE(server.incoming.empty());
}

TEST_P(Transports, ARestartedServerIsFoundAndHearsNothingStale) {
  allow({&ada});
  TestClient a = introduce(ada, Endpoint::kControl);
  server.transport.reset();
  ASSERT_TRUE(until({}, {&a}, [&] { return a.lost == 1; }));
  EXPECT_EQ(a.transport->send(Endpoint::kControl, "stale").error().code, ErrorCode::kUnavailable);
  server = TestServer(network->make_server());
  allow({&ada});
  ASSERT_TRUE(until({&server}, {&a}, [&] { return a.opened == 2; }));
  ASSERT_TRUE(a.transport->send(Endpoint::kControl, "fresh"));
  ASSERT_TRUE(until({&server}, {&a}, [&] { return server.incoming.size() == 1; }));
  EXPECT_EQ(server.incoming[0].bytes, "fresh");
}

TEST_P(Transports, APeerThatDoesNotReadHoldsNobodyUp) {
  allow({&ada, &bob});
  TestClient a = introduce(ada, Endpoint::kBlob);
  TestClient b = introduce(bob, Endpoint::kBlob);
  const Connection slow = server.incoming[0].connection;
  const Connection good = server.incoming[1].connection;
  const std::string chunk(kChunkBytes, 'c');
  Result<void> sent;
  for (int i = 0; i < 1000 && sent; ++i) sent = server.transport->send(slow, chunk);
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().code, ErrorCode::kExhausted);
  ASSERT_TRUE(server.transport->send(good, chunk));
  ASSERT_TRUE(until({&server}, {&b}, [&] { return b.received.size() == 1; }));
  a.transport.reset();
  ASSERT_TRUE(until({&server}, {&b}, [&] { return server.closed.size() == 1; }));
  EXPECT_EQ(server.transport->send(slow, "x").error().code, ErrorCode::kUnavailable);
}

TEST_P(Transports, AReplySentFromTheHandlerMayCloseToo) {
  allow({&ada});
  TestClient a = open(ada, Endpoint::kControl);
  ASSERT_TRUE(a.transport->send(Endpoint::kControl, "one"));
  int closed = 0;
  ASSERT_TRUE(until({}, {&a}, [&] {
    EXPECT_TRUE(server.transport->poll(std::chrono::milliseconds(1), {}, [&](ServerEvent event) {
      if (auto* got = std::get_if<Incoming>(&event)) server.transport->close(got->connection);
      if (std::holds_alternative<Closed>(event)) ++closed;
    }));
    return closed == 1 && a.lost == 1;
  }));
}

TEST_P(Transports, PollReportsOtherDescriptors) {
  const UniqueFd bell(::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
  const UniqueFd silent(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const int both[] = {silent.get(), bell.get()};
  TestClient a = client(ada);
  const auto nothing = [](const auto&) {};
  EXPECT_THAT(*server.transport->poll(std::chrono::seconds(60), both, nothing),
              ::testing::ElementsAre(bell.get()));
  EXPECT_THAT(*a.transport->poll(std::chrono::seconds(60), both, nothing),
              ::testing::ElementsAre(bell.get()));
}

INSTANTIATE_TEST_SUITE_P(All, Transports,
                         ::testing::Values(Make([]() -> std::unique_ptr<TestNetwork> {
                                             return std::make_unique<ZmqTestNetwork>();
                                           }),
                                           Make([]() -> std::unique_ptr<TestNetwork> {
                                             return std::make_unique<FakeTestNetwork>();
                                           })),
                         [](const auto& each) { return each.index == 0 ? "Zmq" : "Fake"; });

}  // namespace
}  // namespace skerry::protocol
