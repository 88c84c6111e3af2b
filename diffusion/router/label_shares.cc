// SPDX-License-Identifier: Apache-2.0
#include "diffusion/router/label_shares.h"

#include "base/check.h"

namespace skerry::diffusion {
namespace {

// [classes + 1, K] from label counts: π(k | y), and π(k) for labels without a
// sample and in the last row.
at::Tensor label_shares(const std::vector<PartitionStatistics>& partitions) {
  const auto experts = static_cast<std::int64_t>(partitions.size());
  const auto classes = static_cast<std::int64_t>(partitions[0].label_counts.size()) - 1;
  at::Tensor shares = torch::zeros({classes + 1, experts}, torch::kF64);
  for (std::int64_t k = 0; k < experts; ++k) {
    const PartitionStatistics& partition = partitions[static_cast<std::size_t>(k)];
    for (std::int64_t y = 0; y < classes; ++y) {
      shares[y][k] = static_cast<double>(partition.label_counts[static_cast<std::size_t>(y)]);
    }
    shares[classes][k] = static_cast<double>(partition.samples);
  }
  const at::Tensor unseen = shares.sum(1, true) == 0;  // [classes + 1, 1]
  shares = torch::where(unseen, shares[classes].unsqueeze(0), shares);
  return shares / shares.sum(1, true);
}

}  // namespace

LabelShares::LabelShares(const std::vector<PartitionStatistics>& partitions) {
  SKERRY_CHECK(!partitions.empty(), "a router of no experts");
  log_given_ = label_shares(partitions).log().to(torch::kF32);
  log_all_ = log_given_[-1].clone();
}

void LabelShares::move_to(const at::Device& device) {
  for (at::Tensor* tensor : {&log_all_, &log_given_}) *tensor = tensor->to(device);
}

at::Tensor LabelShares::log_given(const at::Tensor& labels) const {
  const std::int64_t blind = log_given_.size(0) - 1;
  const at::Tensor y = labels.to(log_given_.device(), torch::kI64);
  const at::Tensor row =
      torch::where((y < 0).logical_or(y >= blind), torch::full_like(y, blind), y);
  return log_given_.index_select(0, row);
}

}  // namespace skerry::diffusion
