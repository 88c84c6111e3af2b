// SPDX-License-Identifier: Apache-2.0
// Several cards for one expert, as threads of the CPU: they give the bits of
// one that takes the same parts in turn.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>

#include "diffusion/testing/testing.h"
#include "diffusion/train/ranks.h"
#include "diffusion/train/train.h"

namespace skerry::diffusion {
namespace {

using namespace testing;

constexpr int kSteps = 20;

TrainSpec training() {
  TrainSpec train = tiny_training();
  train.batch_size = 8;
  return train;
}
TrainSpec of(TrainSpec train, std::uint32_t cards, std::uint32_t micro_batch = 0) {
  train.cards = cards;
  train.micro_batch = micro_batch;
  return train;
}

class SeveralCards : public ::testing::Test {
 protected:
  Trainer fresh(const TrainSpec& train) {
    auto made = Trainer::create(model_, train, shards_);
    EXPECT_TRUE(made) << (made ? "" : made.error().message);
    return std::move(*made);
  }
  static void run(Trainer& trainer, int steps) {
    for (int i = 0; i < steps; ++i) {
      const auto step = trainer.step();
      ASSERT_TRUE(step) << step.error().message;
    }
  }
  // Weights, moments, means and the fingerprint.
  static std::string bytes(const Trainer& trainer) {
    const int memory = ::memfd_create("snapshot", MFD_CLOEXEC);
    std::string image(trainer.write_snapshot(memory).value_or(0), '\0');
    EXPECT_EQ(::pread(memory, image.data(), image.size(), 0), static_cast<ssize_t>(image.size()));
    ::close(memory);
    return image;
  }
  std::string trained(const TrainSpec& train) {
    Trainer trainer = fresh(train);
    run(trainer, kSteps);
    return bytes(trainer);
  }

  TempFolder folder_;
  ModelSpec model_ = tiny_model();
  std::vector<std::string> shards_{write_shard(folder_ / "a", model_, 33)};
};

struct Recipe {
  const char* name;
  void (*change)(TrainSpec&);
};
constexpr Recipe kRecipes[] = {
    {"plain", [](TrainSpec&) {}},
    {"lean", [](TrainSpec& train) { train.state = StateForm::kLean; }},
    {"bf16", [](TrainSpec& train) { train.precision = "bf16"; }},
    {"checkpointing", [](TrainSpec& train) { train.gradient_checkpointing = true; }},
    {"held", [](TrainSpec& train) { train.weight_norm = true; }},
    {"all",
     [](TrainSpec& train) {
       train.state = StateForm::kLean;
       train.precision = "bf16";
       train.gradient_checkpointing = true;
       train.kernels = KernelChoice::kFast;
     }},
};

class SameBits : public SeveralCards, public ::testing::WithParamInterface<Recipe> {};

TEST_P(SameBits, AsOneInParts) {
  TrainSpec train = training();
  GetParam().change(train);
  EXPECT_EQ(trained(of(train, 2)), trained(of(train, 1, 4)));
  EXPECT_EQ(trained(of(train, 4)), trained(of(train, 1, 2)));
}

TEST_P(SameBits, StoppedOnFourAndResumedOnOne) {
  TrainSpec train = training();
  GetParam().change(train);
  Trainer four = fresh(of(train, 4));
  run(four, kSteps / 2);
  const std::string path = folder_ / "checkpoint";
  ASSERT_TRUE(four.write_checkpoint(path));
  const auto checkpoint = storage::Safetensors::open(path);
  ASSERT_TRUE(checkpoint);
  auto one = Trainer::resume(model_, of(train, 1, 2), shards_, *checkpoint);
  ASSERT_TRUE(one) << one.error().message;
  run(*one, kSteps / 2);
  EXPECT_EQ(bytes(*one), trained(of(train, 1, 2)));
}
INSTANTIATE_TEST_SUITE_P(Recipes, SameBits, ::testing::ValuesIn(kRecipes),
                         [](const auto& recipe) { return recipe.param.name; });

// Parts smaller than a card's share, as after out of memory, and an odd rest.
TEST_F(SeveralCards, TakeTurnsAtSmallerParts) {
  EXPECT_EQ(trained(of(training(), 2, 1)), trained(of(training(), 1, 1)));
  EXPECT_EQ(trained(of(training(), 3, 2)), trained(of(training(), 1, 2)));
  EXPECT_EQ(trained(of(training(), 3)), trained(of(training(), 1, 3)));
  EXPECT_EQ(trained(of(training(), 16)), trained(of(training(), 1, 1))) << "more cards than rows";
}

TEST(SeveralRanks, EachRunsOnItsThreadAndFailsAsTheLowest) {
  Ranks ranks(4);
  std::vector<std::thread::id> first(4), second(4);
  ranks.run([&](std::size_t rank) { first[rank] = std::this_thread::get_id(); });
  ranks.run([&](std::size_t rank) { second[rank] = std::this_thread::get_id(); });
  EXPECT_EQ(first, second);
  EXPECT_EQ(first[0], std::this_thread::get_id());
  EXPECT_NE(first[1], first[2]);
  std::atomic<int> ran = 0;
  EXPECT_THAT(
      [&] {
        ranks.run([&](std::size_t rank) {
          ++ran;
          if (rank % 2 == 1) throw std::runtime_error(text("rank ", rank));
        });
      },
      ::testing::ThrowsMessage<std::runtime_error>("rank 1"));
  EXPECT_EQ(ran, 4);
  ranks.run([&](std::size_t) { ++ran; });
  EXPECT_EQ(ran, 8);
}

}  // namespace
}  // namespace skerry::diffusion
