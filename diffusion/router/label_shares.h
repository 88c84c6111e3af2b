// SPDX-License-Identifier: Apache-2.0
// How often each expert has seen each label: the prior of every router.
// Includes LibTorch: for this folder only.
#pragma once

#include <torch/torch.h>

#include <vector>

#include "diffusion/router/statistics.h"

namespace skerry::diffusion {

class LabelShares {
 public:
  // REQUIRES: a partition or more, all of as many classes.
  explicit LabelShares(const std::vector<PartitionStatistics>& partitions);

  const at::Tensor& log_all() const { return log_all_; }  // [K] log π_k
  // log π(k | y) for labels [B] i64: [B,K]. A label below 0, one that no expert
  // has seen, or any label of a set without classes counts as none: log π_k.
  at::Tensor log_given(const at::Tensor& labels) const;
  void move_to(const at::Device& device);

 private:
  at::Tensor log_all_;    // [K]
  at::Tensor log_given_;  // [classes + 1, K]: the last row is log_all_
};

}  // namespace skerry::diffusion
