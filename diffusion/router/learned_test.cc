// SPDX-License-Identifier: Apache-2.0
// The router that is trained: it learns, resumes to the same bytes, respects
// labels, and is asked by sampling.
#include "diffusion/router/learned.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "diffusion/data/ingest.h"
#include "diffusion/router/measure.h"
#include "diffusion/sample/sample.h"
#include "diffusion/testing/test_ensemble.h"
#include "diffusion/testing/test_images.h"
#include "diffusion/train/train.h"

namespace skerry::diffusion {
namespace {

using namespace testing;

class LearnedRouterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    write_image_folder(folder_, "in", 400, 2, 8, 1);
    const auto done = ingest({.input = folder_.path("in"), .output = dataset_, .partitions = 2},
                             [](const Progress&) {});
    ASSERT_TRUE(done.has_value()) << done.error().message;
    const auto index = nlohmann::json::parse(std::ifstream(dataset_ + "/dataset.json"));
    model_.classes = static_cast<std::uint32_t>(index["classes"].size());
    for (const auto& file : index["files"]) {
      if (file["role"] != "shard") continue;
      shards_.push_back(dataset_ + "/" + file["name"].get<std::string>());
      train_.shard_partitions.push_back(file["partition"]);
    }
  }

  Trainer fresh() {
    auto made = Trainer::create(model_, train_, shards_);
    EXPECT_TRUE(made) << (made ? "" : made.error().message);
    return std::move(*made);
  }
  static void run(Trainer& trainer, int steps) {
    for (int i = 0; i < steps; ++i) ASSERT_TRUE(trainer.step());
  }
  std::string saved(const Trainer& trainer, const std::string& name) const {
    const std::string path = folder_.path(name);
    EXPECT_TRUE(trainer.write_checkpoint(path));
    return path;
  }
  static std::string bytes(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  RouterMeasurement measured(const std::string& weights) const {
    const auto out = measure_learned_router(dataset_, weights, {.1, .5, .95}, 1000, -1);
    EXPECT_TRUE(out) << (out ? "" : out.error().message);
    return out ? *out : RouterMeasurement{};
  }

  TemporaryFolder folder_;
  const std::string dataset_ = folder_.path("dataset");
  ModelSpec model_{.image_size = 8,
                   .channels = 1,
                   .patch_size = 2,
                   .width = 32,
                   .depth = 2,
                   .heads = 2,
                   .router_experts = 2};
  TrainSpec train_{.expert = 2,
                   .steps = 200,
                   .batch_size = 32,
                   .learning_rate = 3e-3,
                   .ema = 0.99,
                   .kernels = KernelChoice::kFast,
                   .device = -1};
  std::vector<std::string> shards_;
};

TEST_F(LearnedRouterTest, KnowsNothingAtFirstAndThePartitionsOnceTrained) {
  Trainer trainer = fresh();
  const RouterMeasurement before = measured(saved(trainer, "before"));
  for (const RouterLevel& level : before.levels)
    EXPECT_NEAR(level.cross_entropy, std::log(2), 1e-6);
  run(trainer, 200);
  const RouterMeasurement after = measured(saved(trainer, "after"));
  ASSERT_EQ(after.levels.size(), 3U);
  EXPECT_LT(after.levels[0].cross_entropy, 0.3);
  EXPECT_GE(after.levels[0].accuracy, 0.9);
  EXPECT_LT(after.levels[0].cross_entropy, after.levels[2].cross_entropy);
  EXPECT_LT(after.levels[2].cross_entropy, 0.9);
  EXPECT_GT(after.microseconds, 0);
}

TEST_F(LearnedRouterTest, AResumedTrainingEndsInTheSameBytes) {
  Trainer unbroken = fresh(), first = fresh();
  run(unbroken, 6);
  run(first, 3);
  const auto checkpoint = storage::Safetensors::open(saved(first, "half"));
  ASSERT_TRUE(checkpoint);
  auto second = Trainer::resume(model_, train_, shards_, *checkpoint);
  ASSERT_TRUE(second) << second.error().message;
  run(*second, 3);
  EXPECT_EQ(bytes(saved(*second, "resumed")), bytes(saved(unbroken, "unbroken")));
  ModelSpec other = model_;
  other.router_experts = 3;
  EXPECT_FALSE(Trainer::resume(other, train_, shards_, *checkpoint));
}

TEST_F(LearnedRouterTest, BothKernelsComputeTheSame) {
  Trainer fast = fresh();
  train_.kernels = KernelChoice::kReference;
  Trainer reference = fresh();
  for (int i = 0; i < 5; ++i) {
    const auto a = fast.step(), b = reference.step();
    ASSERT_TRUE(a && b);
    EXPECT_NEAR(a->loss, b->loss, 1e-4);
    EXPECT_NEAR(a->gradient_norm, b->gradient_norm, 1e-3 * b->gradient_norm);
  }
}

TEST_F(LearnedRouterTest, EveryShardMustNameItsPartition) {
  train_.shard_partitions.pop_back();
  EXPECT_FALSE(Trainer::create(model_, train_, shards_));
  train_.shard_partitions.push_back(2);
  EXPECT_FALSE(Trainer::create(model_, train_, shards_));
  model_.router_experts = 0;
  EXPECT_FALSE(Trainer::create(model_, train_, shards_));
}

// p(k | x, t, y) ∝ p(k | x, t) · π(k | y) / π(k), and π is what the counts say.
TEST_F(LearnedRouterTest, TheLabelComesInByItsShares) {
  Trainer trainer = fresh();
  run(trainer, 20);
  const std::string weights = saved(trainer, "weights");
  const auto file = storage::Safetensors::open(weights).value();
  std::vector<PartitionStatistics> partitions(2);
  partitions[0] = {.gaussian = {}, .label_counts = {30, 10, 0}, .samples = 40};
  partitions[1] = {.gaussian = {}, .label_counts = {0, 60, 0}, .samples = 60};
  LearnedRouter router(Dit(model_, load_weights(file, "ema/", model_).value(), torch::kCPU),
                       LabelShares(partitions));
  const at::Tensor x = torch::randn({3, 1, 8, 8});
  const at::Tensor blind =
      router.log_probabilities(x, 0.4, torch::full({3}, -1, torch::kI64)).exp();
  EXPECT_TRUE(at::allclose(blind.sum(1), torch::ones({3})));
  const at::Tensor first = router.log_probabilities(x, 0.4, torch::full({3}, 0, torch::kI64)).exp();
  EXPECT_TRUE(
      at::allclose(first.select(1, 0), torch::ones({3})));  // the other has never seen label 0
  const at::Tensor second =
      router.log_probabilities(x, 0.4, torch::full({3}, 1, torch::kI64)).exp();
  const at::Tensor weighted = blind * torch::tensor({(1. / 7) / .4, (6. / 7) / .6}, torch::kF32);
  EXPECT_TRUE(at::allclose(second, weighted / weighted.sum(1, true), 1e-4, 1e-5));
  EXPECT_TRUE(at::allclose(
      router.log_probabilities(x.flatten(1), 0.4, torch::full({3}, -1, torch::kI64)).exp(), blind));
}

TEST_F(LearnedRouterTest, IsAskedWhereTheEnsembleHasOne) {
  const std::string ensemble = folder_.path("ensemble");
  const ModelSpec expert{.patch_size = 2, .width = 16, .depth = 1, .heads = 1};
  TrainSpec train{.steps = 2, .batch_size = 8, .learning_rate = 1e-2, .device = -1};
  const auto trained = train_ensemble(dataset_, ensemble, expert, train);
  ASSERT_TRUE(trained) << trained.error().message;
  // Without a label, which alone would tell these partitions apart.
  SampleSpec spec{.count = 6, .steps = 5, .route = Route::kFull, .label = -1, .device = -1};
  const auto analytic = sample_ensemble(ensemble, spec, nullptr);
  ASSERT_TRUE(analytic) << analytic.error().message;

  auto index = nlohmann::json::parse(std::ifstream(ensemble + "/ensemble.json"));
  index["router"] = "learned";
  std::ofstream(ensemble + "/ensemble.json") << index;
  const auto missing = sample_ensemble(ensemble, spec, nullptr);
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("learned.safetensors"), std::string::npos);
  Trainer router = fresh();
  run(router, 40);
  std::filesystem::copy_file(saved(router, "router"), ensemble + "/router/learned.safetensors");
  spec.keep_values = true;
  const auto learned = sample_ensemble(ensemble, spec, nullptr);
  ASSERT_TRUE(learned) << learned.error().message;
  spec.router = RouterKind::kAnalytic;
  const auto asked = sample_ensemble(ensemble, spec, nullptr);
  ASSERT_TRUE(asked);
  EXPECT_EQ(asked->pixels, analytic->pixels);
  EXPECT_NE(asked->values, learned->values);

  model_.router_experts = 3;
  std::filesystem::remove(ensemble + "/router/learned.safetensors");
  std::filesystem::copy_file(saved(fresh(), "three"), ensemble + "/router/learned.safetensors");
  spec.router = RouterKind::kLearned;
  const auto other = sample_ensemble(ensemble, spec, nullptr);
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message.find("a router of 3 experts"), std::string::npos);
}

}  // namespace
}  // namespace skerry::diffusion
