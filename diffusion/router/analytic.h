// SPDX-License-Identifier: Apache-2.0
// The router that needs no training: p(k | x_t, t, y) in closed form from
// partition statistics. It combines two views of x_t, weighted by two curves of
// t that belong to the dataset:
// - a Gaussian of each partition,
// - the distance of the denoised estimate's features to the nearest fine
//   centroid of each expert.
//
// Includes LibTorch: for this folder only.
// THREADS: one at a time.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "diffusion/router/label_shares.h"
#include "diffusion/router/router.h"
#include "diffusion/router/statistics.h"

namespace skerry::diffusion {

class AnalyticRouter final : public Router {
 public:
  explicit AnalyticRouter(const RouterFolder& statistics);

  // As Router. A label below 0, a label that no expert has seen, and any label
  // of a set without classes count as none. Computes on the device of x_t.
  at::Tensor log_probabilities(const at::Tensor& x_t, double t, const at::Tensor& labels) override;

  // [B, K] each: log N(x_t; α μ_k, α² Σ_k + σ² I) and −(squared feature
  // distance); α = 1 − t, σ = t.
  struct Views {
    at::Tensor gaussian;
    at::Tensor feature;
  };
  Views views(const at::Tensor& x_t, double t);
  const at::Tensor& log_shares() const { return shares_.log_all(); }  // [K] log π_k

 private:
  void move_to(const at::Device& device);
  at::Tensor gaussian_view(const at::Tensor& squares, const at::Tensor& along_means,
                           const at::Tensor& along, double t) const;
  at::Tensor feature_view(const at::Tensor& coordinates, double t) const;
  double curve(const std::vector<float>& values, double t) const;

  at::Device device_{at::kCPU};
  std::int64_t experts_ = 0, rank_ = 0;  // K; r, the largest of a partition's
  at::Tensor mean_;                      // [d] of the whole set; all below is relative to it
  at::Tensor directions_;  // [d, features + K + K·r]: principal axes, partitions' means, components
  at::Tensor variances_;   // [features] along the principal axes
  at::Tensor mean_squares_;  // [K] |μ_k|²
  at::Tensor mean_along_;    // [K, r] μ_k along its own components
  // [K, r]; a partition of lower rank has its residual at the end
  at::Tensor expert_variances_;
  at::Tensor residuals_;                  // [K] variance outside the components
  at::Tensor fine_, fine_squares_;        // [F, features], grouped by expert; [F]
  std::vector<std::int64_t> fine_begin_;  // [K + 1] rows of fine_
  LabelShares shares_;
  std::vector<float> levels_, curve_gaussian_, curve_feature_;
};

// Reads router.safetensors and the partition files of a dataset folder or an
// ensemble's router/.
Result<std::unique_ptr<Router>> load_analytic_router(const std::string& folder);

}  // namespace skerry::diffusion
