// SPDX-License-Identifier: Apache-2.0
#include "diffusion/router/analytic.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace skerry::diffusion {
namespace {

constexpr double kLeastNoiseVariance = 1e-8;  // at t = 0 the densities stay finite
constexpr float kFarthest =
    -4.F;  // squared distance across the unit sphere, for an expert without centroids

at::Tensor tensor_of(const std::vector<float>& values, at::IntArrayRef shape) {
  return torch::tensor(values, torch::kF32).view(shape);
}

}  // namespace

AnalyticRouter::AnalyticRouter(const RouterFolder& statistics)
    : shares_(statistics.partitions),
      levels_(statistics.shared.levels),
      curve_gaussian_(statistics.shared.curve_gaussian),
      curve_feature_(statistics.shared.curve_feature) {
  const RouterStatistics& shared = statistics.shared;
  const auto d = static_cast<std::int64_t>(shared.whole.dimensions());
  const auto rank = static_cast<std::int64_t>(shared.whole.rank());
  const auto features = static_cast<std::int64_t>(shared.feature_count);
  mean_ = tensor_of(shared.whole.mean, {d});
  variances_ = tensor_of(shared.whole.variances, {rank}).slice(0, 0, features).contiguous();
  experts_ = static_cast<std::int64_t>(statistics.partitions.size());
  for (const PartitionStatistics& partition : statistics.partitions)
    rank_ = std::max(rank_, static_cast<std::int64_t>(partition.gaussian.rank()));
  std::vector<at::Tensor> means, components, variances, residuals;
  for (const PartitionStatistics& partition : statistics.partitions) {
    const GaussianStatistics& g = partition.gaussian;
    const auto r = static_cast<std::int64_t>(g.rank());
    means.push_back(tensor_of(g.mean, {d}) - mean_);
    // A direction of nothing has the variance of all the rest: it changes no
    // density.
    components.push_back(
        torch::constant_pad_nd(tensor_of(g.components, {d, r}), {0, rank_ - r}));  // [d, rank_]
    variances.push_back(
        torch::constant_pad_nd(tensor_of(g.variances, {r}), {0, rank_ - r}, g.residual));
    residuals.push_back(torch::tensor(static_cast<float>(g.residual)));
  }
  const at::Tensor mean = torch::stack(means);               // [K, d]
  const at::Tensor component = torch::stack(components, 1);  // [d, K, r]
  directions_ = torch::cat({tensor_of(shared.whole.components, {d, rank}).slice(1, 0, features),
                            mean.t(), component.flatten(1)},
                           1)
                    .contiguous();
  mean_squares_ = mean.square().sum(1);
  mean_along_ = torch::einsum("kd,dkr->kr", {mean, component});
  expert_variances_ = torch::stack(variances);
  residuals_ = torch::stack(residuals);
  std::vector<std::int64_t> grouped;
  for (std::int64_t k = 0; k < experts_; ++k) {
    fine_begin_.push_back(static_cast<std::int64_t>(grouped.size()));
    for (std::size_t j = 0; j < shared.table.size(); ++j) {
      if (shared.table[j] == static_cast<std::int32_t>(k))
        grouped.push_back(static_cast<std::int64_t>(j));
    }
  }
  fine_begin_.push_back(static_cast<std::int64_t>(grouped.size()));
  fine_ = tensor_of(shared.fine_centroids, {-1, features})
              .index_select(0, torch::tensor(grouped, torch::kI64));
  fine_squares_ = fine_.square().sum(1);
}

void AnalyticRouter::move_to(const at::Device& device) {
  if (device == device_) return;
  for (at::Tensor* tensor : {&mean_, &directions_, &variances_, &mean_squares_, &mean_along_,
                             &expert_variances_, &residuals_, &fine_, &fine_squares_})
    *tensor = tensor->to(device);
  shares_.move_to(device);
  device_ = device;
}

// log N by the Woodbury identity. The covariance has eigenvalues α²λ + σ² along
// the components and α²s + σ² elsewhere. squares [B]: |x|²; along_means [B, K]:
// x·μ_k; along [B, K, r]: x along the components.
at::Tensor AnalyticRouter::gaussian_view(const at::Tensor& squares, const at::Tensor& along_means,
                                         const at::Tensor& along, double t) const {
  const double alpha = 1 - t, noise = std::max(t * t, kLeastNoiseVariance);
  const auto rest = static_cast<double>(mean_.size(0) - rank_);
  const at::Tensor inside = alpha * alpha * expert_variances_ + noise;  // [K, r]
  const at::Tensor outside = alpha * alpha * residuals_ + noise;        // [K]
  const at::Tensor distance =
      squares.unsqueeze(1) - 2 * alpha * along_means + alpha * alpha * mean_squares_;
  const at::Tensor z2 = (along - alpha * mean_along_).square_();
  const at::Tensor off = (distance - z2.sum(2)).clamp_min(0) / outside;
  return -0.5 * ((z2 / inside).sum(2) + off + inside.log().sum(1) + rest * outside.log());
}

// The whole set's Gaussian denoises by shrinking each principal coordinate;
// those beyond the features do not matter. coordinates: [B, features].
at::Tensor AnalyticRouter::feature_view(const at::Tensor& coordinates, double t) const {
  const double alpha = 1 - t, noise = std::max(t * t, kLeastNoiseVariance);
  at::Tensor f = coordinates * (alpha * variances_ / (alpha * alpha * variances_ + noise));
  f = f / f.norm(2, 1, true).clamp_min(1e-12);
  const at::Tensor distance =
      torch::addmm(fine_squares_, f, fine_.t(), 1, -2);  // [B, F], less |f|²
  const at::Tensor squares = f.square().sum(1);
  std::vector<at::Tensor> scores;
  for (std::size_t k = 0; k + 1 < fine_begin_.size(); ++k) {
    const bool empty = fine_begin_[k] == fine_begin_[k + 1];
    scores.push_back(empty ? torch::full({f.size(0)}, kFarthest, f.options())
                           : -distance.slice(1, fine_begin_[k], fine_begin_[k + 1]).amin(1) -
                                 squares);
  }
  return torch::stack(scores, 1);
}

AnalyticRouter::Views AnalyticRouter::views(const at::Tensor& x_t, double t) {
  const torch::NoGradGuard no_grad;
  const double level = std::clamp(t, 0.0, 1.0);
  move_to(x_t.device());
  const at::Tensor x = x_t.to(torch::kF32).flatten(1);  // [B, d]
  SKERRY_CHECK(x.size(1) == mean_.size(0), "the router's images have ", mean_.size(0),
               " values, not ", x.size(1));
  const at::Tensor centred = x - (1 - level) * mean_;
  const at::Tensor along = torch::mm(centred, directions_);
  const std::vector<at::Tensor> parts =
      along.split_with_sizes({variances_.size(0), experts_, experts_ * rank_}, 1);
  return {gaussian_view(centred.square().sum(1), parts[1], parts[2].unflatten(1, {experts_, rank_}),
                        level),
          feature_view(parts[0], level)};
}

double AnalyticRouter::curve(const std::vector<float>& values, double t) const {
  const auto above = std::upper_bound(levels_.begin(), levels_.end(), static_cast<float>(t));
  if (above == levels_.begin()) return values.front();
  if (above == levels_.end()) return values.back();
  const auto i = static_cast<std::size_t>(above - levels_.begin());
  const double part = (t - levels_[i - 1]) / (levels_[i] - levels_[i - 1]);
  return values[i - 1] + part * (values[i] - values[i - 1]);
}

at::Tensor AnalyticRouter::log_probabilities(const at::Tensor& x_t, double t,
                                             const at::Tensor& labels) {
  const torch::NoGradGuard no_grad;
  const Views v = views(x_t, t);
  const at::Tensor evidence =
      curve(curve_gaussian_, t) * v.gaussian + curve(curve_feature_, t) * v.feature;
  return torch::log_softmax(evidence + shares_.log_given(labels), 1);
}

Result<std::unique_ptr<Router>> load_analytic_router(const std::string& folder) {
  ASSIGN_OR_RETURN(const RouterFolder statistics, read_router_folder(folder));
  return std::unique_ptr<Router>(std::make_unique<AnalyticRouter>(statistics));
}

}  // namespace skerry::diffusion
