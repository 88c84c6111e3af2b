// The router that needs no training: p(k | x_t, t, y) in closed form from partition statistics. Two views of
// x_t, weighted by two curves of t that belong to the dataset: a Gaussian of each partition, and the distance
// of the denoised estimate's features to the nearest fine centroid of each expert's set. Includes LibTorch:
// for this folder only. Thread rule: one thread at a time.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "diffusion/router.h"
#include "diffusion/router/label_shares.h"
#include "diffusion/router/statistics.h"

namespace skerry::diffusion {

class AnalyticRouter final : public Router {
 public:
  explicit AnalyticRouter(const RouterFolder& statistics);

  // As Router. A label below 0, one that no expert has seen, or any label of a set without classes counts as
  // none. Computes where x_t is.
  at::Tensor log_probabilities(const at::Tensor& x_t, double t, const at::Tensor& labels) override;

  // [B, K] each: log N(x_t; α μ_k, α² Σ_k + σ² I) and −(squared feature distance); α = 1 − t, σ = t.
  struct Views {
    at::Tensor gaussian;
    at::Tensor feature;
  };
  Views views(const at::Tensor& x_t, double t);
  const at::Tensor& log_shares() const { return shares_.log_all(); }  // [K] log π_k

 private:
  struct Expert {
    at::Tensor mean, components, variances;  // [d], [d, r], [r]
    double residual = 0;
  };
  void move_to(const at::Device& device);
  at::Tensor gaussian_view(const at::Tensor& x, double t) const;
  at::Tensor feature_view(const at::Tensor& x, double t) const;
  double curve(const std::vector<float>& values, double t) const;

  at::Device device_{at::kCPU};
  std::vector<Expert> experts_;
  at::Tensor mean_, basis_, variances_;   // [d], [d, features], [features] of the whole set
  at::Tensor fine_;                       // [F, features], grouped by expert
  std::vector<std::int64_t> fine_begin_;  // [K + 1] rows of fine_
  LabelShares shares_;
  std::vector<float> levels_, curve_gaussian_, curve_feature_;
};

// Reads router.safetensors and the partition files of a dataset folder or an ensemble's router/.
Result<std::unique_ptr<Router>> load_analytic_router(const std::string& folder);

}  // namespace skerry::diffusion
