// SPDX-License-Identifier: Apache-2.0
#include "model/spec.h"

#include <gtest/gtest.h>

namespace skerry {
namespace {

TEST(Spec, PresetsAreThePapersShapes) {
  const auto small = model_preset("S/2");
  ASSERT_TRUE(small);
  EXPECT_EQ(small->width, 384U);
  EXPECT_EQ(small->depth, 12U);
  EXPECT_EQ(small->heads, 6U);
  EXPECT_EQ(small->patch_size, 2U);
  const auto largest = model_preset("XL/8");
  ASSERT_TRUE(largest);
  EXPECT_EQ(largest->width, 1152U);
  EXPECT_EQ(largest->depth, 28U);
  EXPECT_EQ(largest->patch_size, 8U);
}

TEST(Spec, UnknownPresetsAreRefused) {
  for (const char* name : {"", "S", "S/", "S/3", "M/2", "S/22", "s/2"})
    EXPECT_FALSE(model_preset(name)) << name;
}

TEST(Spec, ShapesThatCannotBeAreRefused) {
  ModelSpec model;
  EXPECT_TRUE(validate(model));
  model.patch_size = 5;
  EXPECT_FALSE(validate(model));
  model = {};
  model.heads = 3;
  EXPECT_FALSE(validate(model));
  model = {};
  model.depth = 0;
  EXPECT_FALSE(validate(model));
}

TEST(Spec, RecipesThatCannotBeAreRefused) {
  EXPECT_TRUE(validate(TrainSpec{}));
  TrainSpec train;
  train.precision = "bf16";
  EXPECT_TRUE(validate(train));
  train.precision = "fp16";
  EXPECT_FALSE(validate(train));
  train = {};
  train.learning_rate = 0;
  EXPECT_FALSE(validate(train));
  train = {};
  train.label_dropout = -0.1;
  EXPECT_FALSE(validate(train));
  train = {};
  train.ema = 1;
  EXPECT_FALSE(validate(train));
  train = {};
  train.batch_size = 0;
  EXPECT_FALSE(validate(train));
}

TEST(Spec, UnlabelledModelsHaveANullRowBehindOneUnusedClass) {
  ModelSpec model;
  EXPECT_EQ(model.null_label(), 1U);
  model.classes = 10;
  EXPECT_EQ(model.null_label(), 10U);
}

TEST(Schedule, WarmsUpThenStaysOrFalls) {
  TrainSpec train;
  train.steps = 110;
  train.warmup_steps = 10;
  train.learning_rate = 1;
  EXPECT_DOUBLE_EQ(learning_rate_at(train, 0), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate_at(train, 9), 1);
  EXPECT_DOUBLE_EQ(learning_rate_at(train, 60), 1);
  train.schedule = Schedule::kLinear;
  EXPECT_DOUBLE_EQ(learning_rate_at(train, 10), 1);
  EXPECT_DOUBLE_EQ(learning_rate_at(train, 60), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate_at(train, 110), 0);
  EXPECT_DOUBLE_EQ(learning_rate_at(train, 500), 0);
  train.schedule = Schedule::kCosine;
  EXPECT_DOUBLE_EQ(learning_rate_at(train, 10), 1);
  EXPECT_NEAR(learning_rate_at(train, 35), 0.853553, 1e-6);
  EXPECT_NEAR(learning_rate_at(train, 60), 0.5, 1e-12);
}

TEST(Schedule, ACycleFallsByACosineAndBeginsAnew) {
  TrainSpec train;
  train.steps = 110;
  train.warmup_steps = 10;
  train.learning_rate = 1;
  train.schedule = Schedule::kCyclic;
  EXPECT_FALSE(validate(train));
  train.cycle_steps = 20;
  EXPECT_TRUE(validate(train));
  EXPECT_DOUBLE_EQ(learning_rate_at(train, 9), 1);
  EXPECT_DOUBLE_EQ(learning_rate_at(train, 10), 1);
  EXPECT_NEAR(learning_rate_at(train, 20), 0.5, 1e-12);
  EXPECT_LT(learning_rate_at(train, 29), 0.01);
  EXPECT_DOUBLE_EQ(learning_rate_at(train, 30), 1);
  EXPECT_NEAR(learning_rate_at(train, 100), 0.5, 1e-12);
}

TEST(Schedule, NamesGoThereAndBack) {
  for (const Schedule schedule :
       {Schedule::kConstant, Schedule::kLinear, Schedule::kCosine, Schedule::kCyclic}) {
    EXPECT_EQ(parse_schedule(to_string(schedule)).value(), schedule);
  }
  EXPECT_FALSE(parse_schedule("exponential"));
  EXPECT_EQ(parse_kernel_choice("fast").value(), KernelChoice::kFast);
  EXPECT_EQ(parse_kernel_choice("reference").value(), KernelChoice::kReference);
  EXPECT_FALSE(parse_kernel_choice("slow"));
  for (const StateForm state : {StateForm::kFull, StateForm::kLean}) {
    EXPECT_EQ(parse_state_form(to_string(state)).value(), state);
  }
  EXPECT_FALSE(parse_state_form("thin"));
  EXPECT_EQ(parse_time_distribution("lognormal").value(), TimeDistribution::kLogNormal);
  EXPECT_EQ(parse_time_distribution("uniform").value(), TimeDistribution::kUniform);
  EXPECT_FALSE(parse_time_distribution("normal"));
}

TEST(Ema, ForgetsTheInitialWeights) {
  TrainSpec train;
  EXPECT_DOUBLE_EQ(ema_decay_at(train, 0), 0.1);
  EXPECT_DOUBLE_EQ(ema_decay_at(train, 90), 0.91);
  EXPECT_DOUBLE_EQ(ema_decay_at(train, 1'000'000), 0.9999);
}

}  // namespace
}  // namespace skerry
