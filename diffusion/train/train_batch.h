// SPDX-License-Identifier: Apache-2.0
// One training batch, drawn on the host. The numbers are the same on every
// device and for every split of the batch. Includes LibTorch: for this folder
// only.
#pragma once

#include <torch/torch.h>

#include "diffusion/train/training_set.h"
#include "model/spec.h"

namespace skerry::diffusion {

struct Batch {
  at::Tensor x_t;     // [B,C,S,S] fp32: (1−t)·x0 + t·ε
  at::Tensor t;       // [B] fp32 in [0,1)
  at::Tensor labels;  // [B] i64, the null label if there is none or it was dropped
  // In place of labels, for a PixArt: [B,N,D] fp16 and [B,N] fp32, as padded()
  // makes them. The null caption if it was dropped.
  at::Tensor captions, mask;
  at::Tensor target;      // [B,C,S,S] fp32: ε − x0
  at::Tensor partitions;  // [B] i64, for a router
};

// RETURNS: rows [first, first + rows) of the batch of `step`, on the host.
// `pinned`: in memory that a card copies from directly; needs a LibTorch and a
// machine with CUDA.
Batch make_batch(const TrainingSet& set, SampleOrder& order, const ModelSpec& model,
                 const TrainSpec& train, std::uint64_t step, std::uint32_t first,
                 std::uint32_t rows, bool pinned = false);

}  // namespace skerry::diffusion
