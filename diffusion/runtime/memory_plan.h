// SPDX-License-Identifier: Apache-2.0
// Estimates the card memory that training one expert takes, from the shapes
// alone. memory_test.cc compares the estimate with allocations on the CPU. For
// the reference a training step allocates; for the fast kernels a model that
// computes as a card does. Does not include LibTorch.
#pragma once

#include <cstdint>

#include "diffusion/model/spec.h"

namespace skerry::diffusion {

struct MemoryPlan {
  std::uint64_t parameters = 0;
  std::uint64_t checkpoint_bytes = 0;  // weights, moments, mean
  // independent of the batch: checkpoint, gradients and their sum
  std::uint64_t state_bytes = 0;
  std::uint64_t sample_bytes = 0;  // for each sample that goes through the model at a time
};

// REQUIRES: validated specs. It reads precision, kernels,
// gradient_checkpointing and state of `train`.
MemoryPlan plan_memory(const ModelSpec& model, const TrainSpec& train);

// RETURNS: the most samples at a time that fit into a card of so many bytes; 0:
// the model does not fit. It reserves a part of every card for the driver, the
// libraries and the gaps between tensors.
std::uint64_t rows_that_fit(const MemoryPlan& plan, std::uint64_t card_bytes);

}  // namespace skerry::diffusion
