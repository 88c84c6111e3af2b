// SPDX-License-Identifier: Apache-2.0
// Faults first, then they stop and the transfer must finish: from a seed, every
// time the same.
#include <gtest/gtest.h>

#include "exchange/testing/testing.h"

namespace skerry::exchange {
namespace {

class ExchangeChaos : public testing::TestWithParam<std::uint64_t> {};

// Three givers, one of which may lie, two objects, one taker; connections
// close, the taker and the givers restart, messages are lost, doubled and
// reordered.
TEST_P(ExchangeChaos, ends_whole_once_the_faults_stop) {
  World world(GetParam());
  Stream& random = world.random();
  Config quick;
  quick.request_timeout = std::chrono::seconds(3);
  std::vector<Party*> givers;
  for (const std::string name : {"a", "b", "c"}) givers.push_back(&world.add(name, quick));
  Party& taker = world.add("taker", quick);
  const std::vector<storage::Safetensors> tensors = {small_snapshot(1), small_snapshot(2, 25)};
  std::vector<Hash> objects;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    for (Party* giver : givers) objects.push_back(give(*giver, tensors[i], 100 + i).name);
    objects.resize(i + 1);
  }
  world.faults = {.loss = 0.2 * random.uniform(),
                  .duplication = 0.2 * random.uniform(),
                  .delay_most = std::chrono::milliseconds(1 + random.below(200))};
  const bool has_liar = random.below(2) == 0;
  world.tamper = [&](const Party& from, const Party&, pb::BlobMessage& message) {
    if (has_liar && &from == givers[2] && message.has_reply() && !message.reply().data().empty()) {
      message.mutable_reply()->mutable_data()->back() ^= 4;
    }
    return true;
  };
  const auto fetch_all = [&] {
    for (const Hash& object : objects) {
      if (!taker.objects->has(object)) world.fetch(taker, object);
    }
  };
  const auto whole = [&] {
    return taker.objects->has(objects[0]) && taker.objects->has(objects[1]);
  };
  for (Party* giver : givers) world.connect(*giver, taker);
  fetch_all();
  for (int round = 0; round < 12 && !whole(); ++round) {
    (void)world.run(whole, std::chrono::milliseconds(random.below(400)));
    Party& giver = *givers[random.below(3)];
    switch (random.below(4)) {
      case 0:
        world.disconnect(giver, taker);
        break;
      case 1:
        world.disconnect(giver, taker);
        world.connect(giver, taker);
        break;
      case 2:
        world.restart(giver);
        world.connect(giver, taker);
        break;
      default:
        world.restart(taker);
        for (Party* each : givers) world.connect(*each, taker);
        fetch_all();
    }
  }
  world.faults = {};
  for (Party* giver : givers) {
    world.disconnect(*giver, taker);
    world.connect(*giver, taker);
  }
  ASSERT_TRUE(world.run([&] { return whole() && taker.failed.empty(); }, std::chrono::minutes(5)))
      << (taker.failed.empty() ? "no progress" : taker.failed[0].error.message);
  for (std::size_t i = 0; i < objects.size(); ++i)
    EXPECT_EQ(read_back(taker, objects[i]), tensors[i].file());
  for (const Misbehaved& each : taker.misbehaved) EXPECT_EQ(each.peer, givers[2]->name);
}

INSTANTIATE_TEST_SUITE_P(seeds, ExchangeChaos, testing::Range<std::uint64_t>(1, 61));

}  // namespace
}  // namespace skerry::exchange
