// SPDX-License-Identifier: Apache-2.0
#include "model/memory_plan.h"

#include <gtest/gtest.h>

namespace skerry {
namespace {

// What the coordinator asks and what the engine answers are one estimate.
TEST(MemoryPlan, ARowFitsExactlyFromItsBytesOn) {
  for (const char* const preset : {"S/2", "B/2", "L/2", "XL/2"}) {
    ModelSpec model = model_preset(preset).value();
    model.image_size = 32;
    model.channels = 4;
    for (const StateForm state : {StateForm::kFull, StateForm::kLean}) {
      TrainSpec train;
      train.precision = "bf16";
      train.state = state;
      const MemoryPlan plan = plan_memory(model, train);
      const std::uint64_t bytes = bytes_for_a_row(plan);
      EXPECT_GE(rows_that_fit(plan, bytes + 16), 1U) << preset;
      EXPECT_EQ(rows_that_fit(plan, bytes - 16), 0U) << preset;
    }
  }
}

// Measured on an H100 (docs/benchmarks.md): bf16, fast kernels, the batch at
// once, and for the last in two parts.
TEST(MemoryPlan, IsWithinATenthOfACard) {
  struct Measured {
    const char* preset;
    double rows, gigabytes;
  };
  for (const auto& [preset, rows, gigabytes] : {Measured{"S/2", 64, 3.76},
                                                {"S/2", 256, 13.16},
                                                {"B/2", 64, 8.67},
                                                {"B/2", 256, 27.35},
                                                {"XL/2", 64, 33.74},
                                                {"XL/2", 128, 57.87}}) {
    ModelSpec model = model_preset(preset).value();
    model.image_size = 32;
    model.channels = 4;
    model.classes = 1000;
    TrainSpec train;
    train.precision = "bf16";
    train.kernels = KernelChoice::kFast;
    const MemoryPlan plan = plan_memory(model, train);
    const double planned =
        static_cast<double>(plan.state_bytes) + rows * static_cast<double>(plan.sample_bytes);
    EXPECT_NEAR(planned / 1e9, gigabytes, .1 * gigabytes) << preset << ", " << rows;
    EXPECT_GT(planned / 1e9, gigabytes) << "more than it takes: a card that fits must do";
  }
}

}  // namespace
}  // namespace skerry
