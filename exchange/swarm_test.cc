// SPDX-License-Identifier: Apache-2.0
// Many who receive the same object: who asks whom, what the seed sends, and how
// fast it goes on lines of a known speed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>
#include <optional>

#include "exchange/testing/testing.h"

namespace skerry::exchange {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr std::size_t kChunkBytes = 16 << 10;

// Chunks of one size.
storage::Safetensors even_snapshot(unsigned chunks, std::uint64_t seed = 1,
                                   std::size_t bytes = kChunkBytes) {
  std::vector<std::string> data;
  std::vector<storage::TensorView> views;
  for (unsigned i = 0; i < chunks; ++i) {
    data.push_back(storage::random_bytes(bytes, seed * 1000 + i));
    views.push_back({"raw/" + std::to_string(i), storage::DType::kU8, {bytes}, {}});
  }
  for (unsigned i = 0; i < chunks; ++i) views[i].data = data[i];
  return value_of(storage::Safetensors::parse(value_of(storage::encode_safetensors(views, {}))));
}

double sent_by(const Party& party) {
  return std::accumulate(
      party.sent_bytes.begin(), party.sent_bytes.end(), 0.0,
      [](double sum, const auto& each) { return sum + static_cast<double>(each.second); });
}

class SwarmTest : public testing::Test {
 protected:
  Party& add(const std::string& name, double up = 0, const Config& config = {}) {
    Party& party = world_.add(name, config);
    party.up_bytes_per_second = up;
    return party;
  }
  // All connected with each other and with the seed.
  std::vector<Party*> add_receivers(unsigned number, double up, Party& seed) {
    std::vector<Party*> receivers;
    for (unsigned i = 0; i < number; ++i) {
      Party& fresh = add("receiver " + std::to_string(10 + i), up);
      world_.connect(fresh, seed);
      for (Party* other : receivers) world_.connect(fresh, *other);
      receivers.push_back(&fresh);
    }
    return receivers;
  }
  void fetch(Party& party, const Hash& object, std::vector<PeerId> last_resort) {
    party.exchange->fetch({.object = object, .last_resort = std::move(last_resort)}, world_.now());
    world_.settle(party);
  }
  auto all_have(const std::vector<Party*>& parties, const Hash& object) {
    return [parties, object] {
      return std::all_of(parties.begin(), parties.end(),
                         [&](const Party* party) { return party->objects->has(object); });
    };
  }
  double seconds() const { return std::chrono::duration<double>(world_.now().boot).count(); }

  World world_;
  storage::Safetensors tensors_ = even_snapshot(64);
  double bytes_ = 64 * kChunkBytes;
};

TEST_F(SwarmTest, a_receiver_shares_what_it_has_while_it_still_receives) {
  Party& seed = add("seed", bytes_ / 8);
  const Hash object = give(seed, tensors_).name;
  const std::vector<Party*> two = add_receivers(2, bytes_, seed);
  unsigned shared = 0;
  world_.tamper = [&](const Party& from, const Party&, pb::BlobMessage& message) {
    shared += &from != &seed && message.has_reply() && !message.reply().missing() &&
              !from.objects->has(object);
    return true;
  };
  for (Party* each : two) fetch(*each, object, {});
  ASSERT_TRUE(world_.run(all_have(two, object)));
  EXPECT_GT(shared, 30U);
  EXPECT_LT(sent_by(seed), 1.3 * bytes_);
  EXPECT_LT(seconds(), 11);
  for (const Party* each : two) EXPECT_EQ(read_back(*each, object), tensors_.file());
}

// As the fan-out of a checkpoint: everybody's upload is as the seed's, which
// alone would serve one in eight seconds.
TEST_F(SwarmTest, sixteen_receivers_take_little_of_the_last_resort) {
  Party& seed = add("seed", bytes_ / 8);
  const Hash object = give(seed, tensors_).name;
  const std::vector<Party*> receivers = add_receivers(16, bytes_ / 8, seed);
  world_.faults.delay_most = std::chrono::milliseconds(60);
  for (Party* each : receivers) {
    fetch(*each, object, {seed.name});
    (void)world_.run([] { return false; }, std::chrono::milliseconds(20));
  }
  ASSERT_TRUE(world_.run(all_have(receivers, object)));
  double asked = 0;
  for (const Party* each : receivers) {
    EXPECT_THAT(each->failed, IsEmpty());
    EXPECT_THAT(each->misbehaved, IsEmpty());
    asked += static_cast<double>(each->asked_chunks.size());
  }
  const double copies = sent_by(seed) / bytes_;
  std::printf("%.2f copies, %.2f s, %.3f requests a chunk\n", copies, seconds(), asked / 16 / 65);
  EXPECT_LT(copies, 1.5);
  EXPECT_LT(seconds(), 2.5 * 8);
  EXPECT_LT(asked, 16 * 65 * 1.15);
}

TEST_F(SwarmTest, the_last_resort_serves_only_what_no_other_has) {
  Party& seed = add("seed");
  Party& giver = add("giver", bytes_);
  Party& taker = add("taker");
  const Hash object = give(seed, tensors_).name;
  give(giver, tensors_);
  world_.connect(seed, taker);
  world_.connect(giver, taker);
  fetch(taker, object, {seed.name});
  ASSERT_TRUE(world_.run([&] { return taker.asked[giver.name] >= 20; }));
  EXPECT_LE(taker.asked[seed.name], 1U);  // the manifest, which does not wait
  world_.disconnect(giver, taker);
  ASSERT_TRUE(world_.run([&] { return taker.objects->has(object); }));
  EXPECT_GT(taker.asked[seed.name], 30U);
  EXPECT_LT(seconds(), 2);
}

// The one whose turn it is says nothing more: another asks in its place.
TEST_F(SwarmTest, a_receiver_that_hangs_holds_up_nobody) {
  Party& seed = add("seed", bytes_);
  const Hash object = give(seed, tensors_).name;
  const std::vector<Party*> receivers = add_receivers(4, bytes_, seed);
  Party& hung = *receivers[2];
  for (Party* each : receivers) fetch(*each, object, {seed.name});
  ASSERT_TRUE(world_.run([&] { return receivers[0]->asked_chunks.size() > 3; }));
  world_.tamper = [&](const Party& from, const Party& to, pb::BlobMessage&) {
    return &from != &hung && &to != &hung;
  };
  const std::vector<Party*> others = {receivers[0], receivers[1], receivers[3]};
  ASSERT_TRUE(world_.run(all_have(others, object), std::chrono::minutes(1)));
  EXPECT_LT(sent_by(seed), 3 * bytes_);
}

// They say hello and that they have everything, and answer nothing.
TEST_F(SwarmTest, peers_that_only_say_hello_hold_up_nobody_for_long) {
  Party& seed = add("seed");
  Party& taker = add("taker");
  world_.tamper = [&](const Party& from, const Party&, pb::BlobMessage& message) {
    if (!from.name.str().starts_with("mute")) return true;
    if (message.has_map()) message.mutable_map()->set_whole(true);
    return message.has_hello() || message.has_map();
  };
  for (const char* const name : {"mute 1", "mute 2", "mute 3", "mute 4", "mute 5", "mute 6"})
    world_.connect(add(name), taker);
  world_.connect(seed, taker);
  const Hash object = give(seed, tensors_).name;
  fetch(taker, object, {seed.name});
  ASSERT_TRUE(world_.run([&] { return taker.objects->has(object); }, std::chrono::minutes(3)));
  EXPECT_THAT(taker.failed, IsEmpty());  // which would begin anew
  const double first = seconds();
  EXPECT_LT(first, 45);
  // The silent ones are asked before the seed has said what it has.
  world_.faults.delay_most = std::chrono::milliseconds(60);
  const Hash next = give(seed, even_snapshot(64, 2)).name;
  fetch(taker, next, {seed.name});
  ASSERT_TRUE(world_.run([&] { return taker.objects->has(next); }, std::chrono::minutes(3)));
  EXPECT_LT(seconds() - first, 2);  // it is known by now that they are silent
}

TEST_F(SwarmTest, old_peers_without_maps_still_serve_and_receive) {
  Party& old_giver = add("old giver");
  old_giver.is_old = true;
  Party& old_seed = add("old seed");
  old_seed.is_old = true;
  Party& taker = add("taker");
  Party& old_taker = add("old taker");
  old_taker.is_old = true;
  const Hash object = give(old_giver, tensors_).name;
  give(old_seed, tensors_);
  for (Party* giver : {&old_giver, &old_seed}) world_.connect(*giver, taker);
  world_.connect(taker, old_taker);
  fetch(taker, object, {old_seed.name});
  fetch(old_taker, object, {});
  ASSERT_TRUE(world_.run(all_have({&taker, &old_taker}, object)));
  EXPECT_EQ(taker.asked[old_seed.name], 0U);
}

TEST_F(SwarmTest, a_faster_peer_serves_more) {
  Party& fast = add("fast", 10 * bytes_);
  Party& slow = add("slow", bytes_);
  Party& taker = add("taker");
  const storage::Safetensors large = even_snapshot(400);
  const Hash object = give(fast, large).name;
  give(slow, large);
  world_.connect(fast, taker);
  world_.connect(slow, taker);
  fetch(taker, object, {});
  ASSERT_TRUE(world_.run(all_have({&taker}, object)));
  EXPECT_GT(taker.asked[fast.name], 5 * taker.asked[slow.name]);
  EXPECT_LT(seconds(), 1.3 * 400 / 64 / 11);
}

TEST_F(SwarmTest, the_end_does_not_wait_for_the_slowest) {
  Party& fast = add("fast", 10 * bytes_);
  Party& slow = add("slow", bytes_ / 256);  // four seconds a chunk
  Party& taker = add("taker");
  const Hash object = give(fast, tensors_).name;
  give(slow, tensors_);
  world_.connect(fast, taker);
  world_.connect(slow, taker);
  fetch(taker, object, {});
  ASSERT_TRUE(world_.run(all_have({&taker}, object)));
  EXPECT_LT(seconds(), 3);
  EXPECT_LE(taker.asked_chunks.size(),
            65 + Config().window_per_peer);  // what the slow one had been asked for
}

TEST_F(SwarmTest, an_upload_limit_holds_and_is_shared_fairly) {
  Party& giver = add("giver", 0, {.upload_limit = static_cast<std::uint64_t>(bytes_ / 4)});
  const Hash object = give(giver, tensors_).name;
  Party& first = add("first");
  Party& second = add("second");
  for (Party* taker : {&first, &second}) world_.connect(giver, *taker);
  world_.fetch(first, object, {giver.name});
  (void)world_.run([] { return false; }, std::chrono::milliseconds(200));
  world_.fetch(second, object, {giver.name});
  ASSERT_TRUE(world_.run([&] { return giver.sent_bytes[second.name] > kChunkBytes; }));
  const std::uint64_t ahead = giver.sent_bytes[first.name];
  ASSERT_TRUE(world_.run([&] { return sent_by(giver) > bytes_; }));
  const auto to_first = static_cast<double>(giver.sent_bytes[first.name] - ahead);
  EXPECT_NEAR(to_first / static_cast<double>(giver.sent_bytes[second.name]), 1, 0.15);
  ASSERT_TRUE(world_.run(all_have({&first, &second}, object)));
  EXPECT_NEAR(seconds(), 8, 0.5);
}

// What was read for the first before the second asked goes out before anything
// of the second's.
TEST_F(SwarmTest, under_an_upload_limit_a_newcomer_waits_for_little_that_was_read_ahead) {
  Party& giver = add("giver", 0, {.upload_limit = static_cast<std::uint64_t>(bytes_ / 4)});
  const Hash object = give(giver, tensors_).name;
  Party& first = add("first");
  Party& second = add("second");
  for (Party* taker : {&first, &second}) world_.connect(giver, *taker);
  std::optional<std::uint64_t> when_asked, when_answered;
  world_.tamper = [&](const Party& from, const Party& to, pb::BlobMessage& message) {
    const std::uint64_t to_first = giver.sent_bytes[first.name];
    if (&from == &second && message.has_request() && !when_asked) when_asked = to_first;
    if (&to == &second && message.has_reply() && !when_answered) when_answered = to_first;
    return true;
  };
  world_.fetch(first, object, {giver.name});
  ASSERT_TRUE(world_.run([&] { return giver.sent_bytes[first.name] > 10 * kChunkBytes; }));
  world_.fetch(second, object, {giver.name});
  ASSERT_TRUE(world_.run([&] { return when_answered.has_value(); }));
  EXPECT_LE(*when_answered - *when_asked, 3 * kChunkBytes);
}

TEST_F(SwarmTest, a_download_limit_holds_over_all_peers) {
  Party& taker = add("taker", 0, {.download_limit = static_cast<std::uint64_t>(bytes_ / 4)});
  Hash object;
  for (const std::string name : {"a", "b", "c"}) {
    Party& giver = add(name);
    object = give(giver, tensors_).name;
    world_.connect(giver, taker);
  }
  fetch(taker, object, {});
  ASSERT_TRUE(world_.run(all_have({&taker}, object)));
  EXPECT_NEAR(seconds(), 4, 0.5);
}

// Each waits longer for its turn than it waits for an answer: what comes late
// is as good.
TEST_F(SwarmTest, a_line_too_slow_for_all_who_ask_still_brings_everything) {
  Party& giver = add("giver", 0, {.upload_limit = static_cast<std::uint64_t>(bytes_ / 16)});
  const Hash object = give(giver, tensors_).name;
  Config impatient;
  impatient.request_timeout = std::chrono::seconds(1);
  impatient.peer_pause = std::chrono::milliseconds(200);
  std::vector<Party*> takers;
  for (int i = 0; i < 6;
       ++i) {  // a chunk takes a quarter of a second, so each has one in one and a half
    takers.push_back(&add("taker " + std::to_string(i), 0, impatient));
    world_.connect(giver, *takers.back());
  }
  for (Party* each : takers) fetch(*each, object, {});
  ASSERT_TRUE(world_.run(all_have(takers, object), std::chrono::minutes(10)))
      << (takers[0]->failed.empty() ? std::string("no failure")
                                    : takers[0]->failed[0].error.message);
  EXPECT_THAT(giver.misbehaved, IsEmpty());
  EXPECT_LT(seconds(), 6 * 16 * 1.2);
}

TEST_F(SwarmTest, a_chunk_that_left_with_a_peer_is_named_with_that_peer) {
  Party& giver = add("giver", bytes_);
  const Hash object = give(giver, tensors_).name;
  const std::vector<Party*> two = add_receivers(2, bytes_, giver);
  for (Party* each : two) fetch(*each, object, {});
  ASSERT_TRUE(world_.run([&] { return two[0]->asked_chunks.size() > 20; }));
  for (Party* each : two) world_.disconnect(giver, *each);
  world_.run_all();
  for (const Party* each : two) {
    ASSERT_THAT(each->failed, SizeIs(1));
    EXPECT_EQ(each->failed[0].error.code, ErrorCode::kUnavailable);
    EXPECT_THAT(each->failed[0].error.message, HasSubstr("no connected peer has chunk"));
    EXPECT_THAT(each->failed[0].error.message, HasSubstr("giver had it last"));
    EXPECT_TRUE(each->failed[0].may_retry);
  }
}

TEST_F(SwarmTest, a_receiver_that_gave_up_is_not_waited_for) {
  Party& seed = add("seed", bytes_ / 4);
  const Hash object = give(seed, tensors_).name;
  const std::vector<Party*> two = add_receivers(2, bytes_, seed);
  for (Party* each : two) fetch(*each, object, {seed.name});
  ASSERT_TRUE(world_.run([&] { return two[0]->asked_chunks.size() > 10; }));
  two[0]->exchange->cancel(object, world_.now());
  world_.settle(*two[0]);
  ASSERT_TRUE(world_.run(all_have({two[1]}, object)));
  EXPECT_LT(seconds(), 6);
  EXPECT_THAT(two[0]->completed, IsEmpty());
}

// Liars, losses, doubles, cut connections and restarts at any moment; then the
// faults stop and all must have it.
class SwarmChaos : public testing::TestWithParam<std::uint64_t> {};

TEST_P(SwarmChaos, ends_whole_everywhere_once_the_faults_stop) {
  World world(GetParam());
  Stream& random = world.random();
  Config quick;
  quick.request_timeout = std::chrono::seconds(3);
  quick.upload_limit = random.below(2) == 0 ? 0U : 300'000U;
  quick.download_limit = random.below(3) == 0 ? 400'000U : 0U;
  const storage::Safetensors tensors = even_snapshot(20, GetParam(), 5000);
  std::vector<Party*> parties;
  for (const std::string name : {"seed", "a", "b", "c", "d"}) {
    parties.push_back(&world.add(name, quick));
    parties.back()->up_bytes_per_second = 50'000 + static_cast<double>(random.below(200'000));
    parties.back()->is_old = random.below(5) == 0;
  }
  Party& seed = *parties[0];
  const Hash object = give(seed, tensors).name;
  const std::vector<Party*> receivers(parties.begin() + 1, parties.end());
  Party& liar = *receivers[3];
  const bool has_liar = random.below(2) == 0;
  world.tamper = [&](const Party& from, const Party&, pb::BlobMessage& message) {
    if (!has_liar || &from != &liar) return true;
    if (message.has_reply() && !message.reply().data().empty())
      message.mutable_reply()->mutable_data()->back() ^= 4;
    if (message.has_map())
      message.mutable_map()->add_added(static_cast<std::uint32_t>(random.below(1000)));
    if (message.has_map() && message.map().whole()) message.mutable_map()->clear_added();
    return true;
  };
  const auto fetch = [&](Party& party) {
    if (party.objects->has(object)) return;
    party.exchange->fetch({.object = object, .last_resort = {seed.name}}, world.now());
    world.settle(party);
  };
  const auto connect_all = [&](Party& party) {
    for (Party* other : parties) {
      if (other == &party) continue;
      world.disconnect(party, *other);
      world.connect(party, *other);
    }
  };
  for (std::size_t i = 0; i < parties.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) world.connect(*parties[i], *parties[j]);
  }
  world.faults = {.loss = 0.15 * random.uniform(),
                  .duplication = 0.15 * random.uniform(),
                  .delay_most = std::chrono::milliseconds(1 + random.below(100))};
  for (Party* each : receivers) fetch(*each);
  for (int round = 0; round < 12; ++round) {
    (void)world.run([] { return false; }, std::chrono::milliseconds(random.below(300)));
    Party& party = *parties[random.below(parties.size())];
    if (random.below(2) == 0) {
      world.restart(party);
      connect_all(party);
      if (&party != &seed) fetch(party);
    } else {
      world.disconnect(party, *parties[random.below(parties.size())]);
    }
  }
  world.faults = {};
  for (Party* each : parties) connect_all(*each);
  for (Party* each : receivers) {
    each->failed.clear();
    fetch(*each);
  }
  const auto whole = [&] {
    return std::all_of(receivers.begin(), receivers.end(),
                       [&](Party* each) { return each->objects->has(object); });
  };
  ASSERT_TRUE(world.run(whole, std::chrono::minutes(5)));
  for (const Party* each : receivers) {
    EXPECT_THAT(each->failed, IsEmpty());
    EXPECT_EQ(read_back(*each, object), tensors.file());
    for (const Misbehaved& lie : each->misbehaved) EXPECT_EQ(lie.peer, liar.name);
  }
}

INSTANTIATE_TEST_SUITE_P(seeds, SwarmChaos, testing::Range<std::uint64_t>(1, 61));

}  // namespace
}  // namespace skerry::exchange
