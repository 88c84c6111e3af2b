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
      EXPECT_EQ(rows_that_fit(plan, bytes + 16), 1U) << preset;
      EXPECT_EQ(rows_that_fit(plan, bytes - 16), 0U) << preset;
    }
  }
}

}  // namespace
}  // namespace skerry
