#include "diffusion/router/analytic.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace skerry::diffusion {
namespace {

constexpr double kLeastNoiseVariance = 1e-8;  // at t = 0 the densities stay finite
constexpr float kFarthest = -4.F;  // squared distance across the unit sphere, for an expert without centroids

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
  basis_ = tensor_of(shared.whole.components, {d, rank}).slice(1, 0, features).contiguous();
  variances_ = tensor_of(shared.whole.variances, {rank}).slice(0, 0, features).contiguous();
  for (const PartitionStatistics& partition : statistics.partitions) {
    const GaussianStatistics& g = partition.gaussian;
    const auto r = static_cast<std::int64_t>(g.rank());
    experts_.push_back(
        {tensor_of(g.mean, {d}), tensor_of(g.components, {d, r}), tensor_of(g.variances, {r}), g.residual});
  }
  std::vector<std::int64_t> grouped;
  for (std::size_t k = 0; k < experts_.size(); ++k) {
    fine_begin_.push_back(static_cast<std::int64_t>(grouped.size()));
    for (std::size_t j = 0; j < shared.table.size(); ++j) {
      if (shared.table[j] == static_cast<std::int32_t>(k)) grouped.push_back(static_cast<std::int64_t>(j));
    }
  }
  fine_begin_.push_back(static_cast<std::int64_t>(grouped.size()));
  fine_ =
      tensor_of(shared.fine_centroids, {-1, features}).index_select(0, torch::tensor(grouped, torch::kI64));
}

void AnalyticRouter::move_to(const at::Device& device) {
  if (device == device_) return;
  for (Expert& expert : experts_) {
    for (at::Tensor* tensor : {&expert.mean, &expert.components, &expert.variances})
      *tensor = tensor->to(device);
  }
  for (at::Tensor* tensor : {&mean_, &basis_, &variances_, &fine_}) *tensor = tensor->to(device);
  shares_.move_to(device);
  device_ = device;
}

// log N by the Woodbury identity: the covariance has eigenvalues α²λ + σ² along the components and α²s + σ²
// elsewhere.
at::Tensor AnalyticRouter::gaussian_view(const at::Tensor& x, double t) const {
  const double alpha = 1 - t, noise = std::max(t * t, kLeastNoiseVariance);
  const auto d = static_cast<double>(x.size(1));
  std::vector<at::Tensor> scores;
  for (const Expert& expert : experts_) {
    const at::Tensor r = x - alpha * expert.mean;                     // [B, d]
    const at::Tensor z2 = torch::mm(r, expert.components).square_();  // [B, r]
    const at::Tensor inside = alpha * alpha * expert.variances + noise;
    const double outside = alpha * alpha * expert.residual + noise;
    const at::Tensor rest = (r.square().sum(1) - z2.sum(1)).clamp_min(0) / outside;
    const double log_outside = (d - static_cast<double>(expert.variances.size(0))) * std::log(outside);
    scores.push_back(-0.5 * (torch::mv(z2, inside.reciprocal()) + rest + inside.log().sum() + log_outside));
  }
  return torch::stack(scores, 1);
}

// The whole set's Gaussian denoises by shrinking each principal coordinate; those beyond the features do not
// matter.
at::Tensor AnalyticRouter::feature_view(const at::Tensor& x, double t) const {
  const double alpha = 1 - t, noise = std::max(t * t, kLeastNoiseVariance);
  const at::Tensor gain = alpha * variances_ / (alpha * alpha * variances_ + noise);
  at::Tensor f = torch::mm(x - alpha * mean_, basis_) * gain;  // [B, features]
  f = f / f.norm(2, 1, true).clamp_min(1e-12);
  const at::Tensor distance =
      f.square().sum(1, true) + fine_.square().sum(1).unsqueeze(0) - 2 * torch::mm(f, fine_.t());
  std::vector<at::Tensor> scores;
  for (std::size_t k = 0; k < experts_.size(); ++k) {
    const bool empty = fine_begin_[k] == fine_begin_[k + 1];
    scores.push_back(empty ? torch::full({x.size(0)}, kFarthest, x.options())
                           : -std::get<0>(distance.slice(1, fine_begin_[k], fine_begin_[k + 1]).min(1)));
  }
  return torch::stack(scores, 1);
}

AnalyticRouter::Views AnalyticRouter::views(const at::Tensor& x_t, double t) {
  const torch::NoGradGuard no_grad;
  const double level = std::clamp(t, 0.0, 1.0);
  move_to(x_t.device());
  const at::Tensor x = x_t.to(torch::kF32).flatten(1);  // [B, d]
  SKERRY_CHECK(x.size(1) == mean_.size(0), "the router's images have ", mean_.size(0), " values, not ",
               x.size(1));
  return {gaussian_view(x, level), feature_view(x, level)};
}

double AnalyticRouter::curve(const std::vector<float>& values, double t) const {
  const auto above = std::upper_bound(levels_.begin(), levels_.end(), static_cast<float>(t));
  if (above == levels_.begin()) return values.front();
  if (above == levels_.end()) return values.back();
  const auto i = static_cast<std::size_t>(above - levels_.begin());
  const double part = (t - levels_[i - 1]) / (levels_[i] - levels_[i - 1]);
  return values[i - 1] + part * (values[i] - values[i - 1]);
}

at::Tensor AnalyticRouter::log_probabilities(const at::Tensor& x_t, double t, const at::Tensor& labels) {
  const torch::NoGradGuard no_grad;
  const Views v = views(x_t, t);
  const at::Tensor evidence = curve(curve_gaussian_, t) * v.gaussian + curve(curve_feature_, t) * v.feature;
  return torch::log_softmax(evidence + shares_.log_given(labels), 1);
}

Result<std::unique_ptr<Router>> load_analytic_router(const std::string& folder) {
  ASSIGN_OR_RETURN(const RouterFolder statistics, read_router_folder(folder));
  return std::unique_ptr<Router>(std::make_unique<AnalyticRouter>(statistics));
}

}  // namespace skerry::diffusion
