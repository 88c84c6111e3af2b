// SPDX-License-Identifier: Apache-2.0
#include "exchange/exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "exchange/testing/testing.h"

namespace skerry::exchange {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr std::size_t kSmallChunks = 40;

class ExchangeTest : public testing::Test {
 protected:
  World world_;
  Party& giver_ = world_.add("giver");
  Party& taker_ = world_.add("taker");
  storage::Safetensors tensors_ = small_snapshot(1);
};

TEST_F(ExchangeTest, moves_an_object_byte_for_byte) {
  const Hash object = give(giver_, tensors_).name;
  world_.connect(giver_, taker_);
  world_.fetch(taker_, object);
  world_.run_all();
  EXPECT_THAT(taker_.completed, ElementsAre(object));
  EXPECT_THAT(taker_.failed, IsEmpty());
  EXPECT_EQ(read_back(taker_, object), tensors_.file());
  EXPECT_EQ(taker_.progress[object].bytes, taker_.progress[object].total_bytes);
  EXPECT_THAT(taker_.asked_chunks, SizeIs(kSmallChunks + 1));  // each once, and the manifest
  EXPECT_FALSE(taker_.exchange->is_fetching(object));
}

TEST_F(ExchangeTest, works_both_ways_over_one_connection) {
  const Hash there = give(giver_, tensors_).name;
  const Hash back = give(taker_, small_snapshot(2)).name;
  world_.connect(giver_, taker_);
  world_.fetch(taker_, there);
  world_.fetch(giver_, back);
  world_.run_all();
  EXPECT_TRUE(taker_.objects->has(there));
  EXPECT_TRUE(giver_.objects->has(back));
}

TEST_F(ExchangeTest, large_chunks_and_repeated_ones) {
  const storage::Safetensors large = storage::snapshot(3);
  const Hash object = give(giver_, large).name;
  world_.connect(giver_, taker_);
  world_.fetch(taker_, object);
  world_.run_all();
  EXPECT_EQ(read_back(taker_, object), large.file());
}

TEST_F(ExchangeTest, a_fetch_waits_for_the_connection) {
  const Hash object = give(giver_, tensors_).name;
  world_.fetch(taker_, object, {giver_.name});
  world_.run_all(std::chrono::seconds(5));
  world_.connect(giver_, taker_);
  world_.run_all();
  EXPECT_TRUE(taker_.objects->has(object));
}

TEST_F(ExchangeTest, goes_on_after_a_restart_without_asking_twice_for_what_was_flushed) {
  const Hash object = give(giver_, tensors_).name;
  world_.connect(giver_, taker_);
  world_.fetch(taker_, object);
  ASSERT_TRUE(world_.run([&] { return taker_.asked_chunks.size() >= 20; }));
  value_of(taker_.objects->flush(object));
  const std::size_t stored = value_of(taker_.store.chunks(taker_.store.families().front())).size();
  ASSERT_GT(stored, 5U);
  world_.restart(taker_);
  taker_.asked_chunks.clear();
  world_.connect(giver_, taker_);
  world_.fetch(taker_, object);
  world_.run_all();
  EXPECT_EQ(taker_.asked_chunks.size(), kSmallChunks - stored + 1);
  EXPECT_EQ(read_back(taker_, object), tensors_.file());
}

TEST_F(ExchangeTest, several_peers_share_the_work) {
  Party& second = world_.add("second");
  const Hash object = give(giver_, tensors_).name;
  ASSERT_EQ(give(second, tensors_).name, object);
  world_.connect(giver_, taker_);
  world_.connect(second, taker_);
  world_.fetch(taker_, object);
  world_.run_all();
  EXPECT_EQ(read_back(taker_, object), tensors_.file());
  EXPECT_GT(taker_.asked[giver_.name], 10U);
  EXPECT_GT(taker_.asked[second.name], 10U);
  EXPECT_THAT(taker_.asked_chunks, SizeIs(kSmallChunks + 1));
}

TEST_F(ExchangeTest, tells_how_much_came_from_whom_and_how_fast) {
  Party& second = world_.add("second");
  const storage::NamedManifest named = give(giver_, tensors_);
  give(second, tensors_);
  giver_.up_bytes_per_second = second.up_bytes_per_second = 10'000;
  world_.connect(giver_, taker_);
  world_.connect(second, taker_);
  world_.fetch(taker_, named.name);
  world_.run_all();
  std::uint64_t bytes = named.encoded.size();
  for (const storage::Chunk& chunk : storage::distinct_chunks(named.manifest)) bytes += chunk.bytes;
  const TransferStats& stats = taker_.stats.at(named.name);
  EXPECT_EQ(stats.bytes, bytes);
  EXPECT_EQ(stats.from.at(giver_.name) + stats.from.at(second.name), bytes);
  const double rate =
      static_cast<double>(bytes) / std::chrono::duration<double>(stats.took).count();
  EXPECT_GT(rate, 8'000);  // the manifest comes from one alone
  EXPECT_LT(rate, 21'000);
  // Again, with all of it here: nothing comes.
  world_.fetch(taker_, named.name);
  world_.run_all();
  EXPECT_LE(taker_.stats.at(named.name).bytes, named.encoded.size());
}

TEST_F(ExchangeTest, only_named_peers_are_asked) {
  Party& second = world_.add("second");
  const Hash object = give(giver_, tensors_).name;
  give(second, tensors_);
  world_.connect(giver_, taker_);
  world_.connect(second, taker_);
  world_.fetch(taker_, object, {second.name});
  world_.run_all();
  EXPECT_TRUE(taker_.objects->has(object));
  EXPECT_EQ(taker_.asked[giver_.name], 0U);
}

TEST_F(ExchangeTest, a_peer_that_dies_is_replaced_by_another) {
  Party& second = world_.add("second");
  const Hash object = give(giver_, tensors_).name;
  give(second, tensors_);
  world_.connect(giver_, taker_);
  world_.connect(second, taker_);
  world_.fetch(taker_, object);
  ASSERT_TRUE(world_.run([&] { return taker_.asked[giver_.name] >= 5; }));
  world_.disconnect(giver_, taker_);
  world_.run_all();
  EXPECT_EQ(read_back(taker_, object), tensors_.file());
}

// Flips a bit of every chunk that `liar` sends; its manifests stay right, or
// nobody would ask it on.
auto flip_bits_of(const Party& liar) {
  return [&liar](const Party& from, const Party&, pb::BlobMessage& message) {
    if (&from == &liar && message.has_reply() && !message.reply().missing() &&
        message.reply().data().size() < 400) {
      (*message.mutable_reply()->mutable_data())[0] ^= 1;
    }
    return true;
  };
}

TEST_F(ExchangeTest, a_liar_is_dropped_and_reported) {
  Party& liar = world_.add("liar");
  const Hash object = give(giver_, tensors_).name;
  give(liar, tensors_);
  world_.tamper = flip_bits_of(liar);
  world_.connect(giver_, taker_);
  world_.connect(liar, taker_);
  world_.fetch(taker_, object, {giver_.name, liar.name});
  world_.run_all();
  EXPECT_EQ(read_back(taker_, object), tensors_.file());
  ASSERT_FALSE(taker_.misbehaved.empty());
  EXPECT_LE(taker_.misbehaved.size(),
            Config().window_per_peer);  // what was open when the first lie came
  for (const Misbehaved& each : taker_.misbehaved) EXPECT_EQ(each.peer, liar.name);
  EXPECT_THAT(taker_.misbehaved[0].reason, HasSubstr("wrong bytes"));
}

TEST_F(ExchangeTest, with_a_last_resort_that_lies_and_nobody_else_it_fails_at_once) {
  const Hash object = give(giver_, tensors_).name;
  world_.tamper = flip_bits_of(giver_);
  world_.connect(giver_, taker_);
  world_.fetch(taker_, object, {}, {giver_.name});
  world_.run_all(std::chrono::seconds(10));
  ASSERT_THAT(taker_.failed, SizeIs(1));
  EXPECT_EQ(taker_.failed[0].error.code, ErrorCode::kCorrupt);
}

TEST_F(ExchangeTest, with_liars_alone_it_fails_at_once) {
  const Hash object = give(giver_, tensors_).name;
  world_.tamper = flip_bits_of(giver_);
  world_.connect(giver_, taker_);
  world_.fetch(taker_, object, {giver_.name});
  world_.run_all(std::chrono::seconds(10));
  ASSERT_THAT(taker_.failed, SizeIs(1));
  EXPECT_EQ(taker_.failed[0].error.code, ErrorCode::kCorrupt);
  EXPECT_FALSE(taker_.objects->has(object));
  // Asked again, it is given another chance.
  world_.tamper = nullptr;
  world_.fetch(taker_, object, {giver_.name});
  world_.run_all();
  EXPECT_TRUE(taker_.objects->has(object));
}

TEST_F(ExchangeTest, while_one_object_is_urgent_others_wait) {
  const Hash urgent = give(giver_, tensors_).name;
  const Hash other = give(giver_, small_snapshot(2)).name;
  giver_.exchange->serve_only({urgent}, world_.now());
  world_.connect(giver_, taker_);
  world_.fetch(taker_, other);
  world_.fetch(taker_, urgent);
  world_.run_all(std::chrono::seconds(5));
  EXPECT_THAT(taker_.completed, ElementsAre(urgent));
  giver_.exchange->serve_only({}, world_.now());
  world_.run_all();
  EXPECT_THAT(taker_.completed, ElementsAre(urgent, other));
}

TEST_F(ExchangeTest, a_chunk_damaged_on_the_givers_disk_is_not_served_but_had_elsewhere) {
  Party& second = world_.add("second");
  const storage::NamedManifest named = give(giver_, tensors_);
  give(second, tensors_);
  const Hash damaged = storage::distinct_chunks(named.manifest)[3].hash;
  giver_.disk.damage_chunk(giver_.disk.families().front(), damaged);
  world_.connect(giver_, taker_);
  world_.fetch(taker_, named.name);
  world_.run_all(std::chrono::seconds(20));
  EXPECT_FALSE(taker_.objects->has(named.name));
  EXPECT_THAT(taker_.misbehaved, IsEmpty());
  EXPECT_EQ(std::count(taker_.asked_chunks.begin(), taker_.asked_chunks.end(),
                       storage::distinct_chunks(named.manifest)[5].hash),
            1);  // one lost chunk does not hold up the others
  world_.connect(second, taker_);
  world_.run_all();
  EXPECT_EQ(read_back(taker_, named.name), tensors_.file());
}

TEST_F(ExchangeTest,
       a_peer_that_leaves_requests_without_an_answer_is_named_once_for_each_time_over) {
  const Hash object = give(giver_, tensors_).name;
  unsigned replies = 0;
  world_.tamper = [&](const Party&, const Party&, pb::BlobMessage& message) {
    return !message.has_reply() || ++replies == 1;  // the manifest
  };
  world_.connect(giver_, taker_);
  world_.fetch(taker_, object);
  world_.run_all(Config().request_timeout + std::chrono::seconds(5));
  ASSERT_THAT(taker_.stalled, SizeIs(1));
  EXPECT_EQ(taker_.stalled[0].peer, giver_.name);
  EXPECT_EQ(taker_.stalled[0].object, object);
}

TEST_F(ExchangeTest, what_nobody_has_is_given_up_with_the_reason) {
  world_.connect(giver_, taker_);
  world_.fetch(taker_, blake2b("nowhere"), {giver_.name});
  world_.run_all();
  ASSERT_THAT(taker_.failed, SizeIs(1));
  EXPECT_EQ(taker_.failed[0].error.code, ErrorCode::kUnavailable);
  EXPECT_THAT(taker_.failed[0].error.message, HasSubstr("giver does not have chunk"));
  EXPECT_TRUE(taker_.failed[0].may_retry);
  EXPECT_GE(world_.now().boot, Config().give_up);
}

TEST_F(ExchangeTest, without_any_peer_it_is_given_up) {
  world_.fetch(taker_, blake2b("nowhere"));
  world_.run_all();
  ASSERT_THAT(taker_.failed, SizeIs(1));
  EXPECT_THAT(taker_.failed[0].error.message, HasSubstr("no peer that has it is connected"));
}

TEST_F(ExchangeTest, lost_messages_are_asked_for_again) {
  const Hash object = give(giver_, tensors_).name;
  unsigned replies = 0;
  world_.tamper = [&](const Party&, const Party&, pb::BlobMessage& message) {
    return !message.has_reply() || ++replies % 7 != 3;
  };
  world_.connect(giver_, taker_);
  world_.fetch(taker_, object);
  world_.run_all();
  EXPECT_EQ(read_back(taker_, object), tensors_.file());
  EXPECT_GT(taker_.asked_chunks.size(), kSmallChunks + 1);
}

TEST_F(ExchangeTest, a_name_that_is_no_manifest_cannot_be_helped) {
  // A chunk whose hash is the name, but which is no manifest.
  const std::string bytes = "not a manifest";
  world_.tamper = [&](const Party&, const Party&, pb::BlobMessage& message) {
    if (message.has_reply()) {
      message.mutable_reply()->set_missing(false);
      message.mutable_reply()->set_data(bytes);
    }
    return true;
  };
  world_.connect(giver_, taker_);
  world_.fetch(taker_, blake2b(bytes));
  world_.run_all();
  ASSERT_THAT(taker_.failed, SizeIs(1));
  EXPECT_EQ(taker_.failed[0].error.code, ErrorCode::kCorrupt);
  EXPECT_FALSE(taker_.failed[0].may_retry);
  EXPECT_THAT(taker_.misbehaved, IsEmpty());
}

TEST_F(ExchangeTest, a_full_disk_fails_the_fetch_and_it_goes_on_when_there_is_room) {
  const Hash object = give(giver_, tensors_).name;
  world_.connect(giver_, taker_);
  world_.fetch(taker_, object);
  ASSERT_TRUE(world_.run([&] { return taker_.asked_chunks.size() >= 15; }));
  taker_.disk.set_capacity(0);
  world_.run_all();
  ASSERT_THAT(taker_.failed, SizeIs(1));
  EXPECT_EQ(taker_.failed[0].error.code, ErrorCode::kExhausted);
  taker_.disk.set_capacity(SIZE_MAX);
  world_.fetch(taker_, object);
  world_.run_all();
  EXPECT_EQ(read_back(taker_, object), tensors_.file());
}

TEST_F(ExchangeTest, what_the_disk_has_no_room_for_is_not_asked_for) {
  const Hash object = give(giver_, tensors_).name;
  world_.connect(giver_, taker_);
  taker_.disk.set_capacity(4096);  // the manifest, and a few of the chunks
  world_.fetch(taker_, object);
  world_.run_all();
  ASSERT_THAT(taker_.failed, SizeIs(1));
  EXPECT_EQ(taker_.failed[0].error.code, ErrorCode::kExhausted);
  EXPECT_THAT(taker_.failed[0].error.message, HasSubstr("full"));
  EXPECT_THAT(taker_.asked_chunks, ElementsAre(object));
  taker_.disk.set_capacity(SIZE_MAX);
  world_.fetch(taker_, object);
  world_.run_all();
  EXPECT_EQ(read_back(taker_, object), tensors_.file());
}

// Whatever stands in the place of a chunk, and at every length.
TEST_F(ExchangeTest, a_chunk_of_another_length_is_a_lie_and_had_elsewhere) {
  const std::vector<std::function<void(std::string&)>> ways = {
      [](std::string& data) { data.clear(); }, [](std::string& data) { data.pop_back(); },
      [](std::string& data) { data += 'x'; }, [](std::string& data) { data += data; },
      [](std::string& data) { data.resize(storage::kMaxChunkBytes, '\0'); }};
  for (std::size_t way = 0; way < ways.size(); ++way) {
    World world(way + 1);
    Party& honest = world.add("honest");
    Party& liar = world.add("liar");
    Party& taker = world.add("taker");
    const Hash object = give(honest, tensors_).name;
    give(liar, tensors_);
    world.tamper = [&](const Party& from, const Party&, pb::BlobMessage& message) {
      if (&from == &liar && message.has_reply() && !message.reply().missing())
        ways[way](*message.mutable_reply()->mutable_data());
      return true;
    };
    world.connect(liar, taker);
    world.fetch(taker, object, {liar.name, honest.name});
    world.run_all(std::chrono::seconds(2));
    EXPECT_FALSE(taker.misbehaved.empty()) << way;
    EXPECT_FALSE(taker.objects->has(object));
    world.connect(honest, taker);
    world.run_all();
    EXPECT_EQ(read_back(taker, object), tensors_.file()) << way;
    for (const Misbehaved& each : taker.misbehaved) EXPECT_EQ(each.peer, liar.name);
  }
}

// After every message of a transfer in turn: what was flushed is there, the
// rest comes again, the bytes are the same.
TEST_F(ExchangeTest, a_receiver_killed_at_any_moment_ends_with_the_same_bytes) {
  for (unsigned moment = 1; moment <= 2 * (kSmallChunks + 1); moment += 3) {
    World world(moment);
    Party& giver = world.add("giver");
    Party& taker = world.add("taker");
    const Hash object = give(giver, tensors_).name;
    unsigned messages = 0;
    world.tamper = [&](const Party&, const Party&, pb::BlobMessage& message) {
      messages += message.has_request() || message.has_reply();
      return true;
    };
    world.connect(giver, taker);
    world.fetch(taker, object);
    ASSERT_TRUE(world.run([&] { return messages >= moment; }));
    if (moment % 2 == 0 && taker.objects->partials().size() == 1)
      (void)taker.objects->flush(object);
    EXPECT_TRUE(taker.completed.empty());
    world.restart(taker);
    world.connect(giver, taker);
    world.fetch(taker, object);
    ASSERT_TRUE(world.run([&] { return !taker.completed.empty(); })) << moment;
    EXPECT_EQ(read_back(taker, object), tensors_.file()) << moment;
    world.restart(taker);
    EXPECT_TRUE(taker.objects->has(object))
        << "what was told to be complete is, after the next kill too";
  }
}

TEST_F(ExchangeTest, completed_comes_only_after_the_seal) {
  const Hash object = give(giver_, tensors_).name;
  world_.connect(giver_, taker_);
  taker_.store.fail_at(storage::StoreOperation::kFlush, 1);
  world_.fetch(taker_, object);
  world_.run_all();
  EXPECT_THAT(taker_.completed, IsEmpty());
  ASSERT_THAT(taker_.failed, SizeIs(1));
  EXPECT_EQ(taker_.failed[0].error.code, ErrorCode::kIo);
}

TEST_F(ExchangeTest, cancelling_ends_it_silently_and_frees_the_window) {
  const Hash object = give(giver_, tensors_).name;
  const Hash other = give(giver_, small_snapshot(5), 200).name;
  world_.connect(giver_, taker_);
  world_.fetch(taker_, object);
  ASSERT_TRUE(world_.run([&] { return taker_.asked_chunks.size() >= 12; }));
  taker_.exchange->cancel(object, world_.now());
  world_.fetch(taker_, other);
  world_.run_all();
  EXPECT_THAT(taker_.completed, ElementsAre(other));
  EXPECT_THAT(taker_.failed, IsEmpty());
  EXPECT_FALSE(taker_.objects->has(object));
}

}  // namespace
}  // namespace skerry::exchange
