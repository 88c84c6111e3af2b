// SPDX-License-Identifier: Apache-2.0
#include "diffusion/router/curve_fit.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"

namespace skerry::diffusion {
namespace {

// Labels drawn from the model itself: the fit must find its weights.
ViewScores drawn_from(double a, double b, std::size_t n, std::size_t experts) {
  Stream stream(Position{.seed = 3, .purpose = Purpose::kSimulation});
  ViewScores scores{.experts = experts};
  for (std::size_t k = 0; k < experts; ++k)
    scores.prior.push_back(std::log(1.F / static_cast<float>(experts)));
  for (std::size_t i = 0; i < n; ++i) {
    std::vector<double> p(experts);
    double total = 0;
    for (std::size_t k = 0; k < experts; ++k) {
      scores.gaussian.push_back(100 * stream.normal());
      scores.feature.push_back(0.1F * stream.normal());
      total += p[k] = std::exp(a * scores.gaussian.back() + b * scores.feature.back());
    }
    double left = stream.uniform() * total;
    std::int32_t chosen = 0;
    for (std::size_t k = 0; k + 1 < experts && left >= p[k]; ++k, ++chosen) left -= p[k];
    scores.partitions.push_back(chosen);
  }
  return scores;
}

TEST(CurveFit, FindsTheWeightsThatTheDataCameFrom) {
  const ViewScores scores = drawn_from(0.01, 30, 20'000, 5);
  const CurvePoint point = fit_curve_point(scores);
  EXPECT_NEAR(point.gaussian, 0.01, 0.0005);
  EXPECT_NEAR(point.feature, 30, 1);
}

TEST(CurveFit, NoNeighbourIsBetter) {
  const ViewScores scores = drawn_from(0.02, 5, 3000, 3);
  const CurvePoint point = fit_curve_point(scores);
  const double best = cross_entropy(scores, point);
  for (const double step : {0.9, 1.1}) {
    EXPECT_GT(cross_entropy(scores, {point.gaussian * step, point.feature}), best);
    EXPECT_GT(cross_entropy(scores, {point.gaussian, point.feature * step}), best);
  }
}

TEST(CurveFit, SeparableDataAndASingleExpertStayFinite) {
  const ViewScores two{.experts = 2,
                       .gaussian = {5, -5, -3, 3},
                       .feature = {1, 0, 0, 1},
                       .prior = {-.7F, -.7F},
                       .partitions = {0, 1}};
  const CurvePoint point = fit_curve_point(two);
  EXPECT_TRUE(std::isfinite(point.gaussian));
  EXPECT_LT(std::abs(point.gaussian), 100);
  EXPECT_LT(std::abs(point.feature), 1000);
  const ViewScores one{
      .experts = 1, .gaussian = {5, 1}, .feature = {1, 0}, .prior = {0}, .partitions = {0, 0}};
  EXPECT_TRUE(std::isfinite(fit_curve_point(one).feature));
  EXPECT_NEAR(cross_entropy(one, fit_curve_point(one)), 0, 1e-9);
}

}  // namespace
}  // namespace skerry::diffusion
