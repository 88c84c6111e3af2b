// SPDX-License-Identifier: Apache-2.0
// Two processes' peers, joined by a wire in memory.
#include "peer/peers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

#include "exchange/testing/testing.h"
#include "gossip/testing/testing.h"
#include "protocol/validate.h"

namespace skerry::peer {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

struct FakeClock final : Clock {
  Now now() const override { return gossip::at(boot); }
  Duration boot = std::chrono::seconds(100);
};

class Party final : public Owner {
 public:
  Party(const Clock& clock, std::uint64_t number)
      : author(number),
        verifier(gossip::the_coordinator().ed25519_key()),
        objects(gossip::value_of(
            storage::ObjectStore::open(store, folder / "files", storage::Checkpoints::kInStore))),
        gossip(config(), author.identity, verifier, gossip::Table(verifier.coordinator()),
               clock.now()),
        peers({.clock = clock,
               .worker = worker,
               .chunks = &chunks,
               .gossip = &gossip,
               .certificate = &author.certificate},
              {}, *this) {}

  Result<void> send(const NodeId& /*peer*/, std::string_view bytes) override {
    if (is_full) return fail(ErrorCode::kExhausted, "the connection is full");
    sent.emplace_back(bytes);
    return {};
  }
  std::optional<exchange::Answer> answer(const exchange::Job& job) override {
    return refuses ? std::optional(exchange::refuse(job, fail(ErrorCode::kUnauthorised, "no")))
                   : std::nullopt;
  }
  bool answered(const exchange::Answer& /*answer*/) override { return !disk_failed; }
  void exchanged(const exchange::Effects& effects) override {
    for (const auto& done : effects.completed) completed.push_back(done.object);
    for (const auto& each : effects.failed) failed.push_back(each.error.code);
  }
  void gossiped(const gossip::Effects& effects) override {
    for (const auto& record : effects.news) news.push_back(record->key.author);
    for (const auto& each : effects.misbehaved) misbehaved.push_back(each.reason);
  }
  void run_jobs() {
    while (worker.waiting() > 0) {
      if (const Done done = worker.next()) done();
    }
  }

  gossip::Config config() const {
    gossip::Config config;
    config.coordinator_key = gossip::the_coordinator().ed25519_key();
    config.certificate = author.certificate;
    config.seed = 1;
    return config;
  }

  gossip::Author author;
  gossip::Verifier verifier;
  TempFolder folder;
  storage::MemoryStore store;
  std::unique_ptr<storage::ObjectStore> objects;
  exchange::ObjectChunkStore chunks{*objects};
  gossip::Gossip gossip;
  ManualWorker worker;
  bool is_full = false;
  bool refuses = false;
  bool disk_failed = false;
  std::deque<std::string> sent;
  std::vector<Hash> completed;
  std::vector<ErrorCode> failed;
  std::vector<NodeId> news;
  std::vector<std::string> misbehaved;
  Peers peers;
};

class PeersTest : public ::testing::Test {
 protected:
  void connect() {
    a.peers.connected(b.author.id(), true);
    b.peers.connected(a.author.id(), false);
  }
  static std::size_t deliver(Party& from, Party& to) {
    std::size_t count = 0;
    for (; !from.sent.empty(); ++count) {
      auto message = protocol::parse_blob_message(from.sent.front());
      EXPECT_TRUE(message) << message.error().message;
      from.sent.pop_front();
      to.peers.received(from.author.id(), std::move(*message));
    }
    return count;
  }
  // Until nothing is on its way.
  void settle() {
    do {
      a.run_jobs();
      b.run_jobs();
    } while (deliver(a, b) + deliver(b, a) + a.worker.waiting() + b.worker.waiting() > 0);
  }
  void pass(Duration time) {
    for (const Duration until = clock.boot + time; clock.boot < until;) {
      clock.boot += std::chrono::milliseconds(100);
      a.peers.tick();
      b.peers.tick();
      settle();
    }
  }
  // A checkpoint that lies on the disk of `b`.
  Hash offer() {
    return gossip::value_of(b.objects->store_checkpoint(exchange::small_snapshot(1),
                                                        storage::checkpoint_facts(100)))
        .name;
  }
  void fetch(const Hash& object) {
    a.peers.fetch({.object = object, .from = {b.author.id()}});
    settle();
  }

  FakeClock clock;
  Party a{clock, 1};
  Party b{clock, 2};
};

TEST_F(PeersTest, FetchesAnObjectOverAConnection) {
  const Hash object = offer();
  connect();
  fetch(object);
  EXPECT_THAT(a.completed, ElementsAre(object));
  EXPECT_TRUE(a.objects->has(object));
  EXPECT_FALSE(a.peers.is_fetching(object));
}

TEST_F(PeersTest, AnOwnerRefusesAPeersJob) {
  const Hash object = offer();
  b.refuses = true;
  connect();
  fetch(object);
  EXPECT_THAT(a.completed, IsEmpty());
  EXPECT_FALSE(a.objects->has(object));
}

TEST_F(PeersTest, NothingFollowsOnceTheDiskHasFailed) {
  const Hash object = offer();
  connect();
  a.disk_failed = true;
  fetch(object);
  EXPECT_THAT(a.completed, IsEmpty());
  EXPECT_TRUE(a.peers.is_fetching(object));
}

TEST_F(PeersTest, MessagesWaitForAFullConnectionInTheirOrder) {
  const Hash object = offer();
  a.is_full = true;
  connect();
  fetch(object);
  EXPECT_TRUE(a.peers.is_blocked());
  EXPECT_LT(a.peers.wake_at(), clock.boot + std::chrono::seconds(1));
  a.is_full = false;
  a.peers.tick();
  EXPECT_FALSE(a.peers.is_blocked());
  settle();
  EXPECT_THAT(a.completed, ElementsAre(object));
}

TEST_F(PeersTest, AConnectionThatClosesTakesItsMessagesAlong) {
  a.is_full = true;
  connect();
  a.peers.disconnected(b.author.id());
  EXPECT_FALSE(a.peers.is_blocked());
}

TEST_F(PeersTest, RecordsSpreadOnceBothHaveSaidHello) {
  ASSERT_TRUE(b.gossip.say(gossip::node_fact("tcp://127.0.0.1:7683"), clock.now()));
  connect();
  pass(std::chrono::seconds(20));
  EXPECT_THAT(a.news, ElementsAre(b.author.id()));
}

TEST_F(PeersTest, GossipBeforeTheHelloIsIgnored) {
  a.peers.connected(b.author.id(), true);
  pb::GossipMessage gossip;
  *gossip.add_records() = b.author.sign(gossip::node_fact("tcp://127.0.0.1:7683"), 1, clock.now());
  pb::BlobMessage message;
  message.set_gossip(gossip.SerializeAsString());
  a.peers.received(b.author.id(), message);
  EXPECT_THAT(a.news, IsEmpty());
  EXPECT_THAT(a.misbehaved, IsEmpty());
}

TEST_F(PeersTest, GossipThatBreaksTheProtocolIsReported) {
  connect();
  settle();
  pb::BlobMessage message;
  message.set_gossip("no message at all");
  a.peers.received(b.author.id(), message);
  EXPECT_THAT(a.misbehaved, SizeIs(1));
}

TEST_F(PeersTest, GossipIsNoChunkThatMoved) {
  const Hash object = offer();
  connect();
  settle();
  const Duration greeted = a.peers.moved_at(b.author.id());
  ASSERT_TRUE(b.gossip.say(gossip::node_fact("tcp://127.0.0.1:7683"), clock.now()));
  pass(std::chrono::seconds(20));
  EXPECT_EQ(a.peers.moved_at(b.author.id()), greeted);
  fetch(object);
  EXPECT_EQ(a.peers.moved_at(b.author.id()), clock.boot);
}

TEST_F(PeersTest, WithoutADiskNothingIsOffered) {
  const Hash object = offer();
  b.peers.set_chunks(nullptr);
  connect();
  fetch(object);
  EXPECT_THAT(a.completed, IsEmpty());
}

}  // namespace
}  // namespace skerry::peer
