// SPDX-License-Identifier: Apache-2.0
// What a training step allocates: less with gradient checkpointing, and what
// the plan says.
#include "diffusion/model/model.h"
#include "diffusion/runtime/memory_meter.h"
#include "diffusion/testing/testing.h"
#include "diffusion/train/train.h"
#include "model/memory_plan.h"

namespace skerry::diffusion {
namespace {

using namespace testing;

ModelSpec deep_model() {
  ModelSpec model = tiny_model();
  model.image_size = 32;
  model.width = 64;
  model.heads = 4;
  model.depth = 6;
  return model;
}

ModelSpec deep_pixart() {
  ModelSpec model = deep_model();
  model.caption_dim = 48;
  model.caption_tokens = 40;
  return model;
}

std::vector<ModelSpec> planned_models() {
  std::vector<ModelSpec> models;
  for (ModelSpec model : {deep_model(), deep_pixart()}) {
    for (const std::uint32_t heads : {2U, 8U}) {
      model.heads = heads;
      models.push_back(model);
    }
  }
  return models;
}

std::string named(bool checkpointing, const ModelSpec& model) {
  return text(checkpointing ? "checkpointed, " : "plain, ", model.heads, " heads, ",
              model.is_pixart() ? "PixArt" : "DiT");
}

class MemoryTest : public ::testing::Test {
 protected:
  // The most that a step holds beside weights, moments and mean.
  std::uint64_t step_bytes(const ModelSpec& model, const TrainSpec& train) {
    std::vector<std::string> files{write_shard(folder_ / "shard", model, 20)};
    if (model.is_pixart()) files.push_back(write_captions(folder_ / "captions", model));
    auto trainer = Trainer::create(model, train, files);
    EXPECT_TRUE(trainer) << (trainer ? "" : trainer.error().message);
    EXPECT_TRUE(trainer->step());
    const MemoryMeter meter;
    EXPECT_TRUE(trainer->step());
    return meter.peak_bytes();
  }

  TempFolder folder_;
};

TEST_F(MemoryTest, CheckpointingHoldsOneBlockInsteadOfAll) {
  for (const KernelChoice kernels : {KernelChoice::kReference, KernelChoice::kFast}) {
    TrainSpec train = tiny_training();
    train.kernels = kernels;
    const std::uint64_t plain = step_bytes(deep_model(), train);
    train.gradient_checkpointing = true;
    EXPECT_LT(step_bytes(deep_model(), train), 0.4 * static_cast<double>(plain));
  }
}

TEST_F(MemoryTest, AMicroBatchHoldsItsShare) {
  TrainSpec train = tiny_training();
  train.batch_size = 16;
  const auto whole = static_cast<double>(step_bytes(deep_model(), train));
  train.micro_batch = 4;
  const auto quarter = static_cast<double>(step_bytes(deep_model(), train));
  EXPECT_LT(quarter, 0.35 * whole);
}

TEST_F(MemoryTest, ThePlanIsWhatAStepAllocates) {
  for (const bool checkpointing : {false, true}) {
    TrainSpec train = tiny_training();
    train.gradient_checkpointing = checkpointing;
    for (const ModelSpec& model : planned_models()) {
      train.batch_size = 40;  // many, so that no step is largest where only the gradients are left
      const auto few = static_cast<double>(step_bytes(model, train));
      train.batch_size = 56;
      const auto many = static_cast<double>(step_bytes(model, train));
      const MemoryPlan plan = plan_memory(model, train);
      EXPECT_NEAR((many - few) / 16, static_cast<double>(plan.sample_bytes),
                  0.15 * plan.sample_bytes)
          << named(checkpointing, model);
    }
  }
}

// Takes the place of a card where only what is allocated counts.
class IdleCard : public Card {
  void launch(const std::string& /*kernel*/, Grid /*grid*/, void* /*stream*/,
              void** /*arguments*/) override {}
};

TEST_F(MemoryTest, ThePlanIsWhatAModelOnACardAllocates) {
  for (const bool checkpointing : {false, true}) {
    for (const ModelSpec& model : planned_models()) {
      TrainSpec train = tiny_training();
      train.kernels = KernelChoice::kFast;
      train.gradient_checkpointing = checkpointing;
      std::vector<at::Tensor> weights = initial_weights(model, 1, 0, 0);
      for (at::Tensor& weight : weights) weight.set_requires_grad(true);
      const auto denoiser = make_denoiser(
          model, weights, torch::kCPU, cuda_kernels(std::make_shared<IdleCard>()), checkpointing);
      const auto pass_bytes = [&](std::int64_t batch) {
        const MemoryMeter meter;
        const at::Tensor x = at::zeros({batch, model.channels, model.image_size, model.image_size});
        Condition condition{.labels = at::zeros({batch}, at::kLong)};
        if (model.is_pixart()) {
          condition.captions =
              at::zeros({batch, model.caption_tokens, model.caption_dim}, at::kHalf);
          condition.mask = at::ones({batch, model.caption_tokens});
        }
        const at::Tensor velocity = denoiser->forward(x, at::zeros({batch}), condition);
        torch::autograd::grad({at::mse_loss(velocity, at::zeros_like(x))}, weights);
        return static_cast<double>(meter.peak_bytes());
      };
      const MemoryPlan plan = plan_memory(model, train);
      EXPECT_NEAR((pass_bytes(56) - pass_bytes(40)) / 16, static_cast<double>(plan.sample_bytes),
                  0.15 * plan.sample_bytes)
          << named(checkpointing, model);
    }
  }
}

TEST_F(MemoryTest, ALeanStateHoldsSixBytesAParameterLess) {
  const ModelSpec model = deep_model();
  const std::string shard = write_shard(folder_ / "shard", model, 20);
  const auto created_bytes = [&](StateForm state) {
    TrainSpec train = tiny_training();
    train.state = state;
    const MemoryMeter meter;
    EXPECT_TRUE(Trainer::create(model, train, {shard}));
    return static_cast<double>(meter.peak_bytes());
  };
  const MemoryPlan plan = plan_memory(model, tiny_training());
  const auto parameters = static_cast<double>(plan.parameters);
  EXPECT_EQ(plan.checkpoint_bytes, 16 * plan.parameters);
  TrainSpec lean = tiny_training();
  lean.state = StateForm::kLean;
  EXPECT_EQ(plan_memory(model, lean).checkpoint_bytes, 10 * plan.parameters);
  const double full = created_bytes(StateForm::kFull), small = created_bytes(StateForm::kLean);
  EXPECT_NEAR(full / parameters, 16, 0.5);
  // But for its scratch, of three times the largest parameter: 6 · 64 · 64.
  EXPECT_NEAR(full - small, 6 * parameters - 12.0 * 6 * 64 * 64, 0.02 * full);
}

TEST(MemoryPlanTest, CountsTheParametersOfThePaper) {
  for (const auto& [name, millions] :
       {std::pair{"S/2", 33.0}, {"B/2", 130.0}, {"L/2", 458.0}, {"XL/2", 675.0}}) {
    ModelSpec model = *model_preset(name);
    model.image_size = 32;
    model.channels = 4;
    model.classes = 1000;
    EXPECT_NEAR(static_cast<double>(plan_memory(model, {}).parameters) / 1e6, millions,
                0.02 * millions)
        << name;
  }
}

// 607 million: PixArt of XL/2 on T5-XXL, with as many channels out as in.
TEST(MemoryPlanTest, CountsTheParametersOfAPixart) {
  ModelSpec model = *model_preset("XL/2");
  model.image_size = 32;
  model.channels = 4;
  model.caption_dim = 4096;
  EXPECT_NEAR(static_cast<double>(plan_memory(model, {}).parameters) / 1e6, 610.8, 0.1);
}

TEST(MemoryPlanTest, AWidthThatOurKernelsDoNotServeIsPlannedByTheReference) {
  ModelSpec model = *model_preset("XL/2");
  TrainSpec fast, reference;
  fast.kernels = KernelChoice::kFast;
  EXPECT_LT(plan_memory(model, fast).sample_bytes, plan_memory(model, reference).sample_bytes);
  // As one matrix, which their product keeps, query, key and value count once
  // more.
  EXPECT_EQ(plan_memory(model, fast).state_bytes - plan_memory(model, reference).state_bytes,
            std::uint64_t{28} * 3 * 1152 * 1152 * 4);
  model.width = 8192;
  EXPECT_EQ(plan_memory(model, fast).sample_bytes, plan_memory(model, reference).sample_bytes);
  EXPECT_EQ(plan_memory(model, fast).state_bytes, plan_memory(model, reference).state_bytes);
}

TEST(MemoryPlanTest, MoreFitsIntoMoreAndNothingIntoNothing) {
  const MemoryPlan plan{.parameters = 1, .state_bytes = 4'000'000'000, .sample_bytes = 100'000'000};
  EXPECT_EQ(rows_that_fit(plan, 4'000'000'000), 0U);
  EXPECT_EQ(rows_that_fit(plan, 5'100'000'000), 0U);
  const std::uint64_t fit = rows_that_fit(plan, 12'000'000'000);
  EXPECT_EQ(fit, 62U);
  EXPECT_GT(rows_that_fit(plan, 16'000'000'000), fit);
}

}  // namespace
}  // namespace skerry::diffusion
