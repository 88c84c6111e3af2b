// SPDX-License-Identifier: Apache-2.0
// The analytic router against dense linear algebra, and what it owes to labels.
#include "diffusion/router/analytic.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"
#include "diffusion/router/statistics.h"

namespace skerry::diffusion {
namespace {

constexpr std::int64_t kDimensions = 9;
constexpr std::int64_t kFeatures = 3;

std::vector<float> values_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(torch::kF32).contiguous();
  return {flat.data_ptr<float>(), flat.data_ptr<float>() + flat.numel()};
}

at::Tensor random_tensor(at::IntArrayRef shape, std::uint32_t which) {
  at::Tensor out = torch::empty(shape);
  Stream stream(Position{.seed = which, .purpose = Purpose::kSimulation});
  stream.fill_normal({out.data_ptr<float>(), static_cast<std::size_t>(out.numel())});
  return out;
}

GaussianStatistics gaussian(std::int64_t rank, std::uint32_t which) {
  const at::Tensor q = std::get<0>(torch::linalg_qr(random_tensor({kDimensions, rank}, which)));
  std::vector<float> variances;
  for (std::int64_t i = 0; i < rank; ++i) variances.push_back(2.F / static_cast<float>(i + 1));
  return {values_of(0.5 * random_tensor({kDimensions}, which + 100)), values_of(q), variances,
          0.05F};
}

// Three experts, two classes; expert 2 has never seen class 1, and nobody has
// seen class 2.
RouterFolder folder() {
  RouterFolder f;
  f.shared.whole = gaussian(5, 1);
  f.shared.feature_count = kFeatures;
  at::Tensor fine = random_tensor({12, kFeatures}, 7);
  f.shared.fine_centroids = values_of(fine / fine.norm(2, 1, true));
  for (int j = 0; j < 12; ++j) f.shared.table.push_back(j % 3);
  f.shared.levels = {0.1F, 0.5F, 1.F};
  f.shared.curve_gaussian = {1.F, 0.5F, 0.F};
  f.shared.curve_feature = {4.F, 2.F, 0.F};
  f.shared.linear_a = {0, 0, 0};
  f.shared.linear_b.assign(3 * kDimensions, 0);
  f.partitions = {{gaussian(3, 11), {60, 20, 0, 20}, 100},
                  {gaussian(2, 12), {10, 90, 0, 0}, 100},
                  {gaussian(4, 13), {200, 0, 0, 0}, 200}};
  return f;
}

at::Tensor matrix(const std::vector<float>& values, std::int64_t columns) {
  return torch::tensor(values, torch::kF64).view({-1, columns});
}

at::Tensor labels(std::int64_t n, std::int64_t label) {
  return torch::full({n}, label, torch::kI64);
}

// The same density with the whole covariance written out.
at::Tensor dense_log_density(const GaussianStatistics& g, const at::Tensor& x, double t) {
  const at::Tensor u = matrix(g.components, static_cast<std::int64_t>(g.rank()));
  const at::Tensor eye = torch::eye(kDimensions, torch::kF64);
  const at::Tensor lambda = torch::diag(torch::tensor(g.variances, torch::kF64));
  const at::Tensor sigma = u.mm(lambda).mm(u.t()) + g.residual * (eye - u.mm(u.t()));
  const at::Tensor covariance = (1 - t) * (1 - t) * sigma + t * t * eye;
  const at::Tensor r = x.to(torch::kF64) - (1 - t) * torch::tensor(g.mean, torch::kF64);
  return -0.5 * ((r.mm(torch::inverse(covariance)) * r).sum(1) + torch::logdet(covariance));
}

TEST(AnalyticRouter, GaussianViewEqualsTheDenseGaussian) {
  const RouterFolder f = folder();
  AnalyticRouter router(f);
  const at::Tensor x = random_tensor({6, 1, 3, 3}, 42);
  for (const double t : {0.1, 0.5, 0.9}) {
    const at::Tensor view = router.views(x, t).gaussian;
    for (std::int64_t k = 0; k < 3; ++k) {
      const at::Tensor dense =
          dense_log_density(f.partitions[static_cast<std::size_t>(k)].gaussian, x.flatten(1), t);
      EXPECT_TRUE(torch::allclose(view.select(1, k).to(torch::kF64), dense, 1e-4, 1e-4))
          << "t " << t << " expert " << k;
    }
  }
}

TEST(AnalyticRouter, FeatureViewEqualsTheDenseDenoiser) {
  const RouterFolder f = folder();
  AnalyticRouter router(f);
  const at::Tensor x = random_tensor({6, 1, 3, 3}, 43);
  const GaussianStatistics& g = f.shared.whole;
  const at::Tensor u = matrix(g.components, 5), eye = torch::eye(kDimensions, torch::kF64);
  const at::Tensor sigma = u.mm(torch::diag(torch::tensor(g.variances, torch::kF64))).mm(u.t()) +
                           g.residual * (eye - u.mm(u.t()));
  const at::Tensor mean = torch::tensor(g.mean, torch::kF64);
  const at::Tensor fine = matrix(f.shared.fine_centroids, kFeatures);
  for (const double t : {0.1, 0.6}) {
    const double a = 1 - t;
    // x̂0 = μ + α Σ (α² Σ + σ² I)⁻¹ (x_t − α μ)
    const at::Tensor gain = a * sigma.mm(torch::inverse(a * a * sigma + t * t * eye));
    const at::Tensor x0 = mean + (x.flatten(1).to(torch::kF64) - a * mean).mm(gain.t());
    at::Tensor feature = (x0 - mean).mm(u.slice(1, 0, kFeatures));
    feature = feature / feature.norm(2, 1, true);
    const at::Tensor distance =
        (feature.unsqueeze(1) - fine.unsqueeze(0)).square().sum(2);  // [B, F]
    const at::Tensor view = router.views(x, t).feature;
    for (std::int64_t k = 0; k < 3; ++k) {
      const at::Tensor own =
          std::get<0>(distance.slice(1, k, 12, 3).min(1));  // the table is j mod 3
      EXPECT_TRUE(torch::allclose(view.select(1, k).to(torch::kF64), -own, 1e-4, 1e-4));
    }
  }
}

TEST(AnalyticRouter, IsTheWeightedSumOfItsViewsAndThePrior) {
  const RouterFolder f = folder();
  AnalyticRouter router(f);
  const at::Tensor x = random_tensor({4, 1, 3, 3}, 44);
  const double t = 0.3;  // halfway between the first two levels
  const auto views = router.views(x, t);
  const at::Tensor shares = torch::tensor({.25, .25, .5}).log();
  const at::Tensor expected =
      torch::log_softmax(0.75 * views.gaussian + 3.0 * views.feature + shares, 1);
  EXPECT_TRUE(torch::allclose(router.log_probabilities(x, t, labels(4, -1)), expected, 1e-4, 1e-4));
}

TEST(AnalyticRouter, ProbabilitiesSumToOneAtEveryTimeEvenOutsideTheLevels) {
  AnalyticRouter router(folder());
  const at::Tensor x = 3 * random_tensor({5, 1, 3, 3}, 45);
  for (const double t : {0.0, 0.05, 0.1, 0.7, 0.999, 1.0}) {
    for (const std::int64_t label : {-1, 0, 1, 2, 99}) {
      const at::Tensor p = router.log_probabilities(x, t, labels(5, label)).exp();
      EXPECT_TRUE(torch::isfinite(p).all().item<bool>());
      EXPECT_TRUE(torch::allclose(p.sum(1), torch::ones({5}), 1e-4, 1e-5))
          << "t " << t << " label " << label;
    }
  }
}

TEST(AnalyticRouter, PureNoiseGivesTheSharesOfTheLabel) {
  AnalyticRouter router(folder());
  const at::Tensor x = random_tensor({1, 1, 3, 3}, 46);
  const auto p = [&](std::int64_t label) {
    return router.log_probabilities(x, 1.0, labels(1, label)).exp().squeeze(0);
  };
  EXPECT_TRUE(torch::allclose(p(-1), torch::tensor({.25F, .25F, .5F}), 1e-5, 1e-6));
  EXPECT_TRUE(
      torch::allclose(p(0), torch::tensor({60 / 270.F, 10 / 270.F, 200 / 270.F}), 1e-5, 1e-6));
  EXPECT_TRUE(torch::allclose(p(1), torch::tensor({20 / 110.F, 90 / 110.F, 0.F}), 1e-5, 1e-6));
  EXPECT_TRUE(torch::allclose(p(2), p(-1), 1e-5, 1e-6))
      << "a label that nobody has seen says nothing";
}

TEST(AnalyticRouter, AnExpertThatNeverSawTheLabelGetsNothingWhateverItsEvidence) {
  const RouterFolder f = folder();
  AnalyticRouter router(f);
  // The middle of expert 2: without a label it is the best choice.
  const at::Tensor x = 0.9 * torch::tensor(f.partitions[2].gaussian.mean).view({1, 1, 3, 3});
  const at::Tensor y = torch::tensor({std::int64_t{1}});
  EXPECT_EQ(router.log_probabilities(x, 0.1, y)[0][2].item<float>(), -INFINITY);
  // Rows of one batch may have different labels.
  const at::Tensor both = router.log_probabilities(
      x.repeat({2, 1, 1, 1}), 0.1, torch::tensor({std::int64_t{1}, std::int64_t{0}}));
  EXPECT_EQ(both[0][2].item<float>(), -INFINITY);
  EXPECT_GT(both[1][2].item<float>(), -20.F);
}

TEST(AnalyticRouter, OneExpertIsCertain) {
  RouterFolder f = folder();
  f.partitions.resize(1);
  f.shared.table.assign(12, 0);
  AnalyticRouter router(f);
  const at::Tensor log_p =
      router.log_probabilities(random_tensor({3, 1, 3, 3}, 47), 0.4, labels(3, 0));
  EXPECT_TRUE(torch::equal(log_p, torch::zeros({3, 1})));
}

TEST(AnalyticRouter, AnExpertWithoutFineCentroidsStaysInPlay) {
  RouterFolder f = folder();
  for (auto& k : f.shared.table) k = k == 1 ? 0 : k;
  AnalyticRouter router(f);
  EXPECT_TRUE(
      torch::isfinite(router.log_probabilities(random_tensor({3, 1, 3, 3}, 48), 0.4, labels(3, -1)))
          .all()
          .item<bool>());
}

}  // namespace
}  // namespace skerry::diffusion
