// SPDX-License-Identifier: Apache-2.0
// The lean form of the training state: between steps AdamW's moments and the
// mean of weights are bf16, the weights fp32. A step widens them, changes them
// as the full form does, and rounds each number at random to the bf16 below or
// above it, to the nearer the more often, so that the mean over many steps is
// what fp32 would have. Rounded to the nearest, the mean of weights would never
// move: 1 − decay is far below half a unit in the last place of a bf16, and so
// is 1 − beta2. What is drawn is a function of position (base/random.h), so a
// resumed training goes on bit for bit. Includes LibTorch: for this folder
// only. Thread rule: one thread at a time.
#pragma once

#include <torch/torch.h>

#include <array>
#include <cstdint>

#include "diffusion/kernels/pointwise.h"

namespace skerry::diffusion {

// The memory of an update, taken once and for all: one that ran out of it on
// its way would leave half a step.
struct LeanScratch {
  // For weights on one device, of which the largest has so many numbers;
  // `by_operators` where no kernel of ours rounds.
  LeanScratch(torch::Device device, std::int64_t largest, bool by_operators);
  // What it takes on a card.
  static std::uint64_t card_bytes(std::int64_t largest);

  std::int64_t slice;               // numbers that are handled at a time
  std::array<at::Tensor, 3> exact;  // [slice] fp32, of the first moment, the second and the mean
  // For round_by_operators, else undefined.
  at::Tensor places, draws, shifted;  // [slice] i64; places are 0, 1, 2, …
  at::Tensor strange;                 // [slice] bool
};

// exact [n] fp32 into out [n] bf16, both contiguous; n is at most a slice, and
// exact[0] stands at `place` in its tensor. What is not a number becomes the
// positive quiet NaN. Takes no memory on the device.
void round_at_random(const at::Tensor& exact, pointwise::RoundingKey key, std::int64_t place,
                     LeanScratch& scratch, const at::Tensor& out);

// The same bits by LibTorch's operators, for a device that has no kernel of
// ours.
void round_by_operators(const at::Tensor& exact, pointwise::RoundingKey key, std::int64_t place,
                        LeanScratch& scratch, const at::Tensor& out);

}  // namespace skerry::diffusion
