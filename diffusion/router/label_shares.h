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
  // REQUIRES: at least one partition, all with the same number of classes.
  explicit LabelShares(const std::vector<PartitionStatistics>& partitions);

  const at::Tensor& log_all() const { return log_all_; }  // [K] log π_k
  // RETURNS: log π(k | y) [B,K] for labels [B] i64. A label below 0, a label
  // that no expert has seen, and any label of a set without classes count as
  // none: log π_k.
  at::Tensor log_given(const at::Tensor& labels) const;
  void move_to(const at::Device& device);

 private:
  at::Tensor log_all_;    // [K]
  at::Tensor log_given_;  // [classes + 1, K]: the last row is log_all_
};

}  // namespace skerry::diffusion
