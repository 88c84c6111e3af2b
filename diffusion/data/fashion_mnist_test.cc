// SPDX-License-Identifier: Apache-2.0
// The promises on real images, on Debian's dataset-fashion-mnist: skipped where
// it is not installed.
#include <gtest/gtest.h>

#include <filesystem>

#include "diffusion/data/ingest.h"
#include "diffusion/router/measure.h"
#include "diffusion/router/velocity.h"
#include "diffusion/testing/test_ensemble.h"
#include "diffusion/testing/test_images.h"

namespace skerry::diffusion {
namespace {

using namespace testing;

constexpr char kImages[] = "/usr/share/datasets/fashion-mnist";

class FashionMnist : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kImages)) GTEST_SKIP() << "dataset-fashion-mnist is not installed";
  }
  IngestSummary ingest_into(std::uint32_t partitions) {
    const auto summary = ingest({.input = kImages, .output = dataset(), .partitions = partitions},
                                [](const Progress&) {});
    EXPECT_TRUE(summary.has_value()) << summary.error().message;
    return summary.has_value() ? *summary : IngestSummary{};
  }
  std::string dataset() const { return folder_.path("dataset"); }
  TemporaryFolder folder_;
};

TEST_F(FashionMnist, RouterIsRightOnMoreThanNineOfTen) {
  const IngestSummary summary = ingest_into(8);
  EXPECT_EQ(summary.index.samples, 57'000U);
  EXPECT_EQ(summary.fit + summary.test, 3'000U);
  EXPECT_TRUE(summary.within_caps);
  EXPECT_LE(summary.ratio, 1.2);
  const auto measured = measure_router(dataset(), dataset(), {.05, .3, .5, .9}, 3000);
  ASSERT_TRUE(measured.has_value()) << measured.error().message;
  EXPECT_EQ(measured->images, 1'500U);
  EXPECT_GT(measured->levels[0].accuracy, 0.97);
  EXPECT_GT(measured->levels[1].accuracy, 0.9);
  EXPECT_LT(measured->mean_cross_entropy(), 0.6);
}

TEST_F(FashionMnist, VelocityErrorFallsBelowTheLinearPredictor) {
  ingest_into(2);
  const ModelSpec model{.patch_size = 4, .width = 96, .depth = 3, .heads = 3};
  TrainSpec train{.steps = 200, .batch_size = 32, .learning_rate = 2e-3, .ema = 0.99};
  train.device = -1;
  const auto trained = train_ensemble(dataset(), folder_.path("ensemble"), model, train);
  ASSERT_TRUE(trained.has_value()) << trained.error().message;
  const auto measured = measure_velocity(folder_.path("ensemble"), dataset(), 1000, -1);
  ASSERT_TRUE(measured.has_value()) << measured.error().message;
  for (const VelocityLevel& level : measured->levels) {
    EXPECT_LT(level.full, level.linear) << "t = " << level.t;
    std::printf("t %.1f: linear %.4f, ensemble %.4f, top-1 %.4f, own expert %.4f\n", level.t,
                level.linear, level.full, level.top1, level.own);
  }
}

}  // namespace
}  // namespace skerry::diffusion
