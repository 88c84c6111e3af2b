// SPDX-License-Identifier: Apache-2.0
// What training one expert takes of a card's memory, counted from the shapes
// alone. memory_test.cc holds it to what is allocated on the CPU: of the
// reference by a training step, of the fast kernels by a model that computes as
// a card does. No LibTorch shows here.
#pragma once

#include <cstdint>

#include "diffusion/model/spec.h"

namespace skerry::diffusion {

struct MemoryPlan {
  std::uint64_t parameters = 0;
  std::uint64_t checkpoint_bytes = 0;  // weights, moments, mean
  std::uint64_t state_bytes = 0;       // whatever the batch: those, gradients and their sum
  std::uint64_t sample_bytes = 0;      // for each sample that goes through the model at a time
};

// REQUIRES: validated specs. Of `train` it reads precision, kernels,
// gradient_checkpointing and state.
MemoryPlan plan_memory(const ModelSpec& model, const TrainSpec& train);

// The most samples at a time that fit into a card of so many bytes; 0: the
// model does not fit. A part of every card is left to its driver, the libraries
// and the gaps between tensors.
std::uint64_t rows_that_fit(const MemoryPlan& plan, std::uint64_t card_bytes);

}  // namespace skerry::diffusion
