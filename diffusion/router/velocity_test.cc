// SPDX-License-Identifier: Apache-2.0
// It learns: a trained ensemble's velocity error on images it has never seen,
// beside the best linear predictor's.
#include "diffusion/router/velocity.h"

#include <gtest/gtest.h>

#include "diffusion/data/ingest.h"
#include "diffusion/testing/test_ensemble.h"
#include "diffusion/testing/test_images.h"

namespace skerry::diffusion {
namespace {

using namespace testing;

class Learning : public ::testing::Test {
 protected:
  void SetUp() override {
    write_image_folder(folder_, "in", 400, 2, 8, 1);
    const auto done =
        ingest({.input = folder_.path("in"), .output = folder_.path("dataset"), .partitions = 2},
               [](const Progress&) {});
    ASSERT_TRUE(done.has_value()) << done.error().message;
  }
  VelocityMeasurement after(std::uint64_t steps) {
    const std::string ensemble = folder_.path("ensemble-" + std::to_string(steps));
    const ModelSpec model{.patch_size = 2, .width = 32, .depth = 2, .heads = 2};
    TrainSpec train{.steps = steps, .batch_size = 32, .learning_rate = 3e-3, .ema = 0.99};
    train.device = -1;
    const auto trained = train_ensemble(folder_.path("dataset"), ensemble, model, train);
    EXPECT_TRUE(trained.has_value()) << trained.error().message;
    const auto measured = measure_velocity(ensemble, folder_.path("dataset"), 1000, -1);
    EXPECT_TRUE(measured.has_value()) << measured.error().message;
    return measured.has_value() ? *measured : VelocityMeasurement{};
  }
  TemporaryFolder folder_;
};

TEST_F(Learning, BeatsTheLinearPredictorOnceTrainedAndNotBefore) {
  const VelocityMeasurement fresh = after(1), trained = after(250);
  ASSERT_EQ(trained.levels.size(), 3U);
  EXPECT_EQ(trained.images, 10U);
  EXPECT_FALSE(fresh.below_linear());
  EXPECT_TRUE(trained.below_linear());
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(trained.levels[i].t, fresh.levels[i].t);
    EXPECT_DOUBLE_EQ(trained.levels[i].linear, fresh.levels[i].linear);
    EXPECT_LT(trained.levels[i].full, trained.levels[i].linear);
    EXPECT_LT(trained.levels[i].own, fresh.levels[i].own);
  }
}

TEST_F(Learning, ADatasetOfAnotherShapeIsRefused) {
  const TemporaryFolder other;
  write_image_folder(other, "in", 60, 2, 12, 1);
  ASSERT_TRUE(ingest({.input = other.path("in"), .output = other.path("dataset"), .partitions = 2},
                     [](const Progress&) {})
                  .has_value());
  after(1);
  const auto measured =
      measure_velocity(folder_.path("ensemble-1"), other.path("dataset"), 100, -1);
  ASSERT_FALSE(measured.has_value());
  EXPECT_EQ(measured.error().code, ErrorCode::kInvalid);
}

}  // namespace
}  // namespace skerry::diffusion
