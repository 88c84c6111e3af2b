// SPDX-License-Identifier: Apache-2.0
// The real connection against a small coordinator in a fake network: questions,
// fetches, uploads, lost connections.
#include "cli/connect/connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/temp_folder.h"
#include "cli/connect/fleet.h"
#include "exchange/exchange.h"
#include "gossip/gossip.h"
#include "gossip/testing/testing.h"
#include "protocol/testing/fake_transport.h"
#include "protocol/validate.h"
#include "storage/layout.h"
#include "storage/testing/testing.h"

namespace skerry::cli {
namespace {

using protocol::Endpoint;
using testing::AllOf;
using testing::HasSubstr;

class VirtualClock final : public Clock {
 public:
  explicit VirtualClock(const protocol::FakeNetwork& network) : network_(network) {}
  Now now() const override { return {network_.now(), 1'000}; }

 private:
  const protocol::FakeNetwork& network_;
};

// Greets, acknowledges, and has an exchange of its own over the folder it is
// given.
class Coordinator {
 public:
  explicit Coordinator(const std::string& folder) : chunk_store(folder) {
    network.set_background([this] { work(); });
  }

  void allow(const protocol::Identity& person) { transport_->allow(person.x25519_key()); }

  protocol::FakeNetwork network{7};
  VirtualClock clock{network};
  protocol::Identity identity = protocol::Identity::generate();
  exchange::FolderChunkStore chunk_store;
  exchange::Exchange exchange{{}};
  std::size_t completed = 0;
  std::size_t sent_chunks = 0;
  std::function<void(std::size_t sent_chunks)> on_chunk;
  bool silent = false;
  std::string peers;  // what it tells of the nodes
  int peers_wanted = 0;

 private:
  void work() {
    auto polled = transport_->poll(Duration::zero(), {},
                                   [this](protocol::ServerEvent event) { on(std::move(event)); });
    EXPECT_TRUE(polled.has_value());
    exchange.tick(clock.now());
    carry_out();
  }
  void on(protocol::ServerEvent event) {
    if (const auto* closed = std::get_if<protocol::Closed>(&event)) {
      const exchange::PeerId peer(closed->connection.id);
      if (exchange.is_connected(peer)) exchange.disconnected(peer, clock.now());
      return;
    }
    if (std::holds_alternative<protocol::TurnedAway>(event)) return;
    auto& got = std::get<protocol::Incoming>(event);
    if (got.connection.endpoint == Endpoint::kControl) return answer(got);
    const exchange::PeerId peer(got.connection.id);
    if (!exchange.is_connected(peer)) {
      connections_.emplace(peer, got.connection);
      exchange.connected(peer, clock.now());
    }
    auto message = protocol::parse_blob_message(got.bytes);
    ASSERT_TRUE(message.has_value()) << message.error().message;
    exchange.received(peer, std::move(*message), clock.now());
  }
  void answer(const protocol::Incoming& got) {
    if (silent) return;
    const auto request = protocol::parse_control_request(got.bytes);
    ASSERT_TRUE(request.has_value()) << request.error().message;
    pb::ControlReply reply;
    reply.set_id(request->id());
    if (request->has_hello()) {
      *reply.mutable_hello()->mutable_version() = protocol::own_version();
      reply.mutable_hello()->set_heartbeat_ms(1000);
      reply.mutable_hello()->set_lease_ms(6000);
      if (request->hello().wants_peers()) {
        ++peers_wanted;
        reply.mutable_hello()->set_peers(peers);
      }
    } else {
      reply.mutable_admin()->mutable_ack();
    }
    EXPECT_TRUE(transport_->send(got.connection, reply.SerializeAsString()).has_value());
  }
  void carry_out() {
    while (true) {
      exchange::Effects effects = exchange.take_effects();
      for (const exchange::Send& send : effects.sends) {
        (void)transport_->send(connections_.at(send.peer), send.message.SerializeAsString());
        if (!send.message.has_reply()) continue;
        ++sent_chunks;
        if (on_chunk) on_chunk(sent_chunks);
      }
      completed += effects.completed.size();
      if (effects.jobs.empty()) return;
      for (const exchange::Job& job : effects.jobs)
        exchange.answered(exchange::perform(chunk_store, job), clock.now());
    }
  }

  std::unique_ptr<protocol::ServerTransport> transport_ = network.make_server(identity);
  std::map<exchange::PeerId, protocol::Connection> connections_;
};

class ConnectionTest : public testing::Test {
 protected:
  ConnectionTest() {
    std::filesystem::create_directories(folder / "there");
    std::filesystem::create_directories(folder / "here");
    coordinator.allow(person);
  }

  storage::NamedManifest make_file(const std::string& name, std::size_t bytes) {
    std::ofstream(folder / name, std::ios::binary) << storage::random_bytes(bytes, bytes);
    return storage::value_of(storage::build_file_manifest(folder / name, name));
  }
  std::string read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

  TempFolder folder;
  Coordinator coordinator{folder / "there"};
  const protocol::Identity person = protocol::Identity::generate();
  std::unique_ptr<AdminClient> client =
      make_connection(coordinator.network.make_client(person, coordinator.identity.ed25519_key()),
                      {coordinator.identity.ed25519_key(),
                       {"tcp://there:7600", "tcp://there:7601", "tcp://there:7602"},
                       pb::ROLE_ADMIN,
                       "test.toml"},
                      coordinator.clock);
};

TEST_F(ConnectionTest, AsksAndIsAnswered) {
  pb::AdminRequest request;
  request.mutable_status();
  const auto reply = client->ask(request);
  ASSERT_TRUE(reply.has_value()) << reply.error().message;
  EXPECT_TRUE(reply->has_ack());
}

TEST_F(ConnectionTest, ACoordinatorThatNeverSpokeIsUnreachableAndOneThatFellSilentTimesOut) {
  pb::AdminRequest request;
  request.mutable_status();
  coordinator.silent = true;
  auto reply = client->ask(request);
  ASSERT_FALSE(reply.has_value());
  EXPECT_EQ(reply.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(reply.error().message, AllOf(HasSubstr("test.toml"), HasSubstr("tcp://there:7600")));
  coordinator.silent = false;
  ASSERT_TRUE(client->ask(request).has_value());
  coordinator.silent = true;
  reply = client->ask(request);
  ASSERT_FALSE(reply.has_value());
  EXPECT_EQ(reply.error().code, ErrorCode::kTimeout);
}

// What a command leaves of the nodes beside its context, on records that a test
// has signed.
class PeerMemoryTest : public ConnectionTest {
 protected:
  PeerMemoryTest() { tell({&rented}); }
  void tell(const std::vector<const gossip::Author*>& nodes) {
    gossip::Table table(gossip::the_coordinator().node_id());
    for (const gossip::Author* node : nodes) {
      const pb::RecordBody fact = gossip::node_fact("tcp://192.0.2.7:4000");
      table.put(gossip::genuine(verifier, node->sign(fact, ++version)), {}, gossip::at({}));
    }
    coordinator.peers = gossip::save_table(table, gossip::at({}));
  }
  void ask(const std::string& origin) {
    const auto fresh = make_connection(
        coordinator.network.make_client(person, coordinator.identity.ed25519_key()),
        {gossip::the_coordinator().ed25519_key(), {}, pb::ROLE_ADMIN, origin}, coordinator.clock);
    pb::AdminRequest request;
    request.mutable_status();
    const auto reply = fresh->ask(request);
    EXPECT_TRUE(reply.has_value()) << reply.error().message;
  }
  // As `--from` finds it.
  Result<NodeAddress> known(const std::string& id_or_name) {
    const Now now = coordinator.clock.now();
    return parse_node_address(id_or_name,
                              gossip::load_table(read(context + ".peers"), verifier, {}, now), now);
  }
  void age_by(std::chrono::seconds age) {
    const auto written =
        std::chrono::file_clock::from_sys(std::chrono::sys_time<std::chrono::milliseconds>(
            std::chrono::milliseconds(coordinator.clock.now().unix_ms)));
    std::filesystem::last_write_time(context + ".peers", written - age);
  }

  const std::string context = folder / "context.toml";
  const gossip::Author rented{1};
  const gossip::Author second{2};
  gossip::Verifier verifier{gossip::the_coordinator().ed25519_key()};
  std::uint64_t version = 0;
};

TEST_F(PeerMemoryTest, AnyQuestionRemembersTheNodes) {
  ask(context);
  ASSERT_TRUE(known("rented")) << known("rented").error().message;
  EXPECT_EQ(known("rented")->url, "tcp://192.0.2.7:4000");
  EXPECT_EQ(known("rented")->key, rented.identity.ed25519_key());
}

TEST_F(PeerMemoryTest, OnceAMinuteAndBesideWhatWasKnown) {
  ask(context);
  tell({&second});
  age_by(std::chrono::seconds(59));
  ask(context);
  EXPECT_EQ(coordinator.peers_wanted, 1);
  EXPECT_FALSE(known(second.id().str()));
  age_by(std::chrono::seconds(60));
  ask(context);
  EXPECT_EQ(coordinator.peers_wanted, 2);
  EXPECT_TRUE(known(second.id().str()));
  EXPECT_TRUE(known(rented.id().str()));
}

TEST_F(PeerMemoryTest, WhatCannotBeKeptFailsNothing) {
  testing::internal::CaptureStderr();
  ask(folder / "none/context.toml");
  EXPECT_EQ(coordinator.peers_wanted, 0);
  std::filesystem::create_directories(context + ".peers/in the way");
  age_by(std::chrono::seconds(60));
  ask(context);
  EXPECT_EQ(coordinator.peers_wanted, 1);
  coordinator.peers = "no records";
  std::filesystem::remove_all(context + ".peers");
  ask(context);
  EXPECT_EQ(coordinator.peers_wanted, 2);
  EXPECT_FALSE(std::filesystem::exists(context + ".peers"));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(ConnectionTest, FetchesManyObjectsThroughALostConnection) {
  std::vector<WantedObject> wanted;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < 40; ++i) {
    names.push_back("file-" + std::to_string(i));
    const auto manifest = make_file(names.back(), i == 3 ? 9'000'000 : 100 + i);
    storage::value_of(coordinator.chunk_store.offer(manifest, folder / names.back()));
    wanted.push_back({manifest.name, manifest.encoded.size(), {}, 0});
  }
  coordinator.on_chunk = [this](std::size_t sent) {
    if (sent == 20) coordinator.network.reset(person.x25519_key());
  };
  exchange::FolderChunkStore chunk_store(folder / "here");
  std::uint64_t done = 0, total = 0;
  const auto fetched =
      client->fetch(wanted, chunk_store, [&](std::uint64_t now_done, std::uint64_t now_total) {
        done = now_done;
        total = now_total;
      });
  ASSERT_TRUE(fetched.has_value()) << fetched.error().message;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(read(chunk_store.path_of(wanted[i].object)), read(folder / names[i]));
  }
  EXPECT_EQ(done, total);
  EXPECT_GT(total, 9'000'000U);
  EXPECT_GT(coordinator.sent_chunks, 20U);

  // What is there is not asked for again, but for the manifests.
  const std::size_t before = coordinator.sent_chunks;
  exchange::FolderChunkStore again(folder / "here");
  ASSERT_TRUE(client->fetch(wanted, again, [](std::uint64_t, std::uint64_t) {}).has_value());
  EXPECT_EQ(coordinator.sent_chunks, before + wanted.size());
}

TEST_F(ConnectionTest, AnObjectThatIsNotThereIsUnavailable) {
  exchange::FolderChunkStore chunk_store(folder / "here");
  const auto fetched = client->fetch({{blake2b("nothing"), 0, {}, 0}}, chunk_store,
                                     [](std::uint64_t, std::uint64_t) {});
  ASSERT_FALSE(fetched.has_value());
  EXPECT_EQ(fetched.error().code, ErrorCode::kUnavailable);
}

TEST_F(ConnectionTest, ServesUntilTheCoordinatorHasEverything) {
  const auto manifest = make_file("shard", 9'000'000);
  exchange::FolderChunkStore chunk_store(folder.path().string());
  storage::value_of(chunk_store.offer(manifest, folder / "shard"));
  coordinator.exchange.fetch({manifest.name, manifest.encoded.size(), {}, {}},
                             coordinator.clock.now());
  int asked = 0;
  const auto served = client->serve(chunk_store, [&]() -> Result<bool> {
    pb::AdminRequest request;
    request.mutable_status();
    TRY(client->ask(request));  // as commands do: in the middle of the transfer
    if (++asked == 2) coordinator.network.reset(person.x25519_key());
    return coordinator.completed == 1;
  });
  ASSERT_TRUE(served.has_value()) << served.error().message;
  EXPECT_EQ(read(folder / ("there/" + manifest.name.hex())), read(folder / "shard"));
}

TEST_F(ConnectionTest, AFileThatChangedWhileItIsServedIsAnErrorNotAHang) {
  const auto manifest = make_file("shard", 5'000);
  exchange::FolderChunkStore chunk_store(folder.path().string());
  storage::value_of(chunk_store.offer(manifest, folder / "shard"));
  std::ofstream(folder / "shard", std::ios::binary) << storage::random_bytes(5'000, 1);
  coordinator.exchange.fetch({manifest.name, manifest.encoded.size(), {}, {}},
                             coordinator.clock.now());
  const auto served = client->serve(chunk_store, []() -> Result<bool> { return false; });
  ASSERT_FALSE(served.has_value());
  EXPECT_EQ(served.error().code, ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace skerry::cli
