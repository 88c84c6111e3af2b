// SPDX-License-Identifier: Apache-2.0
// The lean form of the training state: between steps AdamW's moments and the
// mean of weights are bf16, the weights fp32.
//
// A step widens them, changes them as the full form does, and rounds each
// number at random. It rounds to the bf16 below or above, more often to the
// nearer, so that the mean over many steps is that of fp32. Rounded to the
// nearest, the mean of weights would never move. Both 1 − decay and 1 − beta2
// are far below half a unit in the last place of a bf16.
// The random draws are a function of position (base/random.h), so a resumed
// training continues bit for bit. Includes LibTorch: for this folder only.
// THREADS: one at a time.
#pragma once

#include <torch/torch.h>

#include <array>
#include <cstdint>

#include "diffusion/kernels/pointwise.h"

namespace skerry::diffusion {

// The memory of an update, allocated once. An update that ran out of memory
// halfway would leave half a step.
struct LeanScratch {
  // For weights on one device, the largest of which has `largest` numbers.
  // `by_operators`: no kernel of ours rounds there.
  LeanScratch(torch::Device device, std::int64_t largest, bool by_operators);

  std::int64_t slice;               // numbers processed at a time
  std::array<at::Tensor, 3> exact;  // [slice] fp32: the first moment, the second and the mean
  // For round_by_operators, else undefined.
  at::Tensor places, draws, shifted;  // [slice] i64; places are 0, 1, 2, …
  at::Tensor strange;                 // [slice] bool
};

// Rounds exact [n] fp32 into out [n] bf16, both contiguous. n is at most a
// slice, and exact[0] stands at `place` in its tensor. NaN becomes the positive
// quiet NaN. Allocates no memory on the device.
void round_at_random(const at::Tensor& exact, pointwise::RoundingKey key, std::int64_t place,
                     LeanScratch& scratch, const at::Tensor& out);

// The same bits by LibTorch's operators, for a device without a kernel of ours.
void round_by_operators(const at::Tensor& exact, pointwise::RoundingKey key, std::int64_t place,
                        LeanScratch& scratch, const at::Tensor& out);

}  // namespace skerry::diffusion
