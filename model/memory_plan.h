// SPDX-License-Identifier: Apache-2.0
// Estimates the card memory that training one expert takes, from the shapes
// alone. diffusion/runtime/memory_test.cc compares it with allocations on the
// CPU. For the reference a training step allocates; for the fast kernels a
// model that computes as a card does.
#pragma once

#include <cstdint>

#include "model/spec.h"

namespace skerry {

struct MemoryPlan {
  std::uint64_t parameters = 0;
  std::uint64_t checkpoint_bytes = 0;  // weights, moments, mean
  // independent of the batch: checkpoint, weights as the products take them,
  // sum of the gradients of parts of a batch
  std::uint64_t state_bytes = 0;
  // gradients of one part: they grow while the backward pass frees what the
  // forward pass kept, so that the larger of both counts
  std::uint64_t gradient_bytes = 0;
  std::uint64_t sample_bytes = 0;  // for each sample that goes through the model at a time
};

// An update of the lean state widens so many numbers at a time on a card.
inline constexpr std::uint64_t kLeanSlice = std::uint64_t{1} << 22;
// RETURNS: the bytes that such updates take on a card. `largest`: the numbers
// in the largest parameter.
std::uint64_t lean_scratch_bytes(std::uint64_t largest);

// REQUIRES: validated specs. It reads precision, kernels,
// gradient_checkpointing and state of `train`.
MemoryPlan plan_memory(const ModelSpec& model, const TrainSpec& train);

// RETURNS: the most samples at a time that fit into a card of so many bytes; 0:
// the model does not fit. It reserves a part of every card for the driver, the
// libraries and the gaps between tensors.
std::uint64_t rows_that_fit(const MemoryPlan& plan, std::uint64_t card_bytes);

// RETURNS: the bytes of the smallest card that one sample at a time fits into.
std::uint64_t bytes_for_a_row(const MemoryPlan& plan);

}  // namespace skerry
