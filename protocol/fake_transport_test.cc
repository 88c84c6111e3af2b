// SPDX-License-Identifier: Apache-2.0
// The faults that only the network in memory has.
#include "protocol/testing/fake_transport.h"

#include <gtest/gtest.h>

#include "protocol/testing/test_network.h"

namespace skerry::protocol {
namespace {

struct FakeFaults : ::testing::Test {
  FakeTestNetwork net;
  const Identity ada = *Identity::from_seed(std::string(32, 'a'));
  TestServer server{net.make_server()};
  TestClient client{net.make_client(ada, net.coordinator.ed25519_key())};

  FakeFaults() {
    server.transport->allow(ada.x25519_key());
    client.transport->dial(Endpoint::kControl);
    EXPECT_TRUE(until({&server}, {&client}, [&] { return client.opened == 1; }));
  }
  void send(int count) {
    for (int i = 0; i < count; ++i)
      EXPECT_TRUE(client.transport->send(Endpoint::kControl, std::to_string(i)));
  }
  void settle(Duration time) {
    net.network.advance(time);
    server.poll();
    client.poll();
  }
};

TEST_F(FakeFaults, SilentLossLosesAndDuplicationRepeats) {
  net.network.set_faults({.loss = 1});
  send(5);
  settle(std::chrono::seconds(1));
  EXPECT_TRUE(server.incoming.empty());
  EXPECT_EQ(client.lost, 0);
  net.network.set_faults({.duplicate = 1});
  send(5);
  settle(std::chrono::seconds(1));
  EXPECT_EQ(server.incoming.size(), 10u);
}

TEST_F(FakeFaults, AResetIsToldToBothEnds) {
  send(1);
  settle(std::chrono::milliseconds(5));
  net.network.reset(ada.x25519_key());
  settle(std::chrono::seconds(1));
  EXPECT_EQ(server.closed.size(), 1u);
  EXPECT_EQ(client.lost, 1);
  EXPECT_EQ(client.opened, 2);
}

TEST_F(FakeFaults, AShortCutOnlyDelaysALongOneEndsTheConnection) {
  net.network.partition(ada.x25519_key(), true);
  send(1);
  settle(std::chrono::seconds(2));
  EXPECT_TRUE(server.incoming.empty());
  net.network.partition(ada.x25519_key(), false);
  settle(std::chrono::seconds(1));
  EXPECT_EQ(server.incoming.size(), 1u);
  net.network.partition(ada.x25519_key(), true);
  settle(FakeNetwork::kSilenceDetection + std::chrono::seconds(1));
  EXPECT_EQ(client.lost, 1);
  EXPECT_EQ(server.closed.size(), 1u);
  settle(std::chrono::minutes(1));
  EXPECT_EQ(client.opened, 1);
  net.network.partition(ada.x25519_key(), false);
  settle(std::chrono::seconds(10));
  EXPECT_EQ(client.opened, 2);
}

TEST_F(FakeFaults, ReorderingOvertakes) {
  net.network.set_faults({.reorder = 0.5});
  send(30);
  settle(std::chrono::seconds(1));
  ASSERT_EQ(server.incoming.size(), 30u);
  bool overtaken = false;
  for (std::size_t i = 1; i < 30; ++i) {
    overtaken =
        overtaken || std::stoi(server.incoming[i].bytes) < std::stoi(server.incoming[i - 1].bytes);
  }
  EXPECT_TRUE(overtaken);
}

std::vector<std::string> story(std::uint64_t seed) {
  FakeNetwork network(seed);
  const Identity coordinator = *Identity::from_seed(std::string(32, 'c'));
  const Identity ada = *Identity::from_seed(std::string(32, 'a'));
  network.set_faults({.delay_max = std::chrono::milliseconds(50),
                      .loss = 0.2,
                      .duplicate = 0.2,
                      .reorder = 0.3,
                      .reset = 0.05});
  TestServer server(network.make_server(coordinator));
  server.transport->allow(ada.x25519_key());
  TestClient client(network.make_client(ada, coordinator.ed25519_key()));
  client.transport->dial(Endpoint::kControl);
  for (int i = 0; i < 100; ++i) {
    network.advance(std::chrono::milliseconds(20));
    client.poll();
    server.poll();
    (void)client.transport->send(Endpoint::kControl, std::to_string(i)).has_value();
  }
  std::vector<std::string> all;
  for (const Incoming& message : server.incoming)
    all.push_back(message.connection.id + " " + message.bytes);
  return all;
}

TEST(FakeSeed, DecidesEverything) {
  EXPECT_EQ(story(1), story(1));
  EXPECT_NE(story(1), story(2));
  EXPECT_GT(story(1).size(), 20u);
}

}  // namespace
}  // namespace skerry::protocol
