// SPDX-License-Identifier: Apache-2.0
#include "diffusion/router/curve_fit.h"

#include <algorithm>
#include <cmath>

namespace skerry::diffusion {
namespace {

constexpr int kMaxIterations = 50;
constexpr double kPriorGaussian = 0.5;  // in units of the Gaussian view's spread
constexpr double kPriorFeature = 10.0;  // per squared distance of unit features

struct Sums {
  double loss = 0;
  double gradient[2] = {0, 0};
  double curvature[3] = {0, 0, 0};  // aa, ab, bb
};

Sums accumulate(const ViewScores& s, const CurvePoint& point) {
  Sums sums;
  const std::size_t n = s.partitions.size();
  std::vector<double> p(s.experts);
  for (std::size_t i = 0; i < n; ++i) {
    const float* g = &s.gaussian[i * s.experts];
    const float* f = &s.feature[i * s.experts];
    double top = -INFINITY;
    for (std::size_t k = 0; k < s.experts; ++k) {
      p[k] = s.prior[k] + point.gaussian * g[k] + point.feature * f[k];
      top = std::max(top, p[k]);
    }
    const auto truth = static_cast<std::size_t>(s.partitions[i]);
    const double of_truth = p[truth];
    double total = 0;
    for (double& value : p) total += value = std::exp(value - top);
    double mg = 0, mf = 0, gg = 0, gf = 0,
           ff = 0;  // centred on the truth, which cancels in the curvature
    for (std::size_t k = 0; k < s.experts; ++k) {
      const double share = p[k] / total, dg = double{g[k]} - g[truth], df = double{f[k]} - f[truth];
      mg += share * dg;
      mf += share * df;
      gg += share * dg * dg;
      gf += share * dg * df;
      ff += share * df * df;
    }
    sums.loss += std::log(total) + top - of_truth;
    sums.gradient[0] += mg;
    sums.gradient[1] += mf;
    sums.curvature[0] += gg - mg * mg;
    sums.curvature[1] += gf - mg * mf;
    sums.curvature[2] += ff - mf * mf;
  }
  return sums;
}

double spread(const std::vector<float>& values, std::size_t experts) {
  double sum = 0;
  for (std::size_t i = 0; i < values.size(); i += experts) {
    double mean = 0, square = 0;
    for (std::size_t k = 0; k < experts; ++k) mean += values[i + k];
    mean /= static_cast<double>(experts);
    for (std::size_t k = 0; k < experts; ++k)
      square += (values[i + k] - mean) * (values[i + k] - mean);
    sum += square;
  }
  return std::sqrt(sum / static_cast<double>(std::max<std::size_t>(1, values.size())));
}

}  // namespace

double cross_entropy(const ViewScores& scores, const CurvePoint& point) {
  return accumulate(scores, point).loss /
         static_cast<double>(std::max<std::size_t>(1, scores.partitions.size()));
}

CurvePoint fit_curve_point(const ViewScores& scores) {
  const double scale = std::max(1e-9, spread(scores.gaussian, scores.experts));
  const CurvePoint prior{kPriorGaussian / scale, kPriorFeature};
  // As much pull as one sample: one spread of the Gaussian view, one prior
  // weight of the other.
  const double pull[2] = {scale * scale, 1.0 / (kPriorFeature * kPriorFeature)};
  const auto penalised = [&](const Sums& sums, const CurvePoint& at) {
    const double da = at.gaussian - prior.gaussian, db = at.feature - prior.feature;
    return sums.loss + 0.5 * (pull[0] * da * da + pull[1] * db * db);
  };
  CurvePoint point = prior;
  Sums sums = accumulate(scores, point);
  for (int i = 0; i < kMaxIterations; ++i) {
    const double ga = sums.gradient[0] + pull[0] * (point.gaussian - prior.gaussian);
    const double gb = sums.gradient[1] + pull[1] * (point.feature - prior.feature);
    const double aa = sums.curvature[0] + pull[0], ab = sums.curvature[1],
                 bb = sums.curvature[2] + pull[1];
    const double determinant = aa * bb - ab * ab;
    const double step_a = (bb * ga - ab * gb) / determinant,
                 step_b = (aa * gb - ab * ga) / determinant;
    const double decrease = ga * step_a + gb * step_b;
    if (!(decrease > 1e-10 * (1 + sums.loss))) break;
    bool improved = false;
    for (double length = 1; length > 1e-6 && !improved; length /= 2) {
      const CurvePoint candidate{point.gaussian - length * step_a, point.feature - length * step_b};
      const Sums at_candidate = accumulate(scores, candidate);
      if (penalised(at_candidate, candidate) <= penalised(sums, point) - 1e-4 * length * decrease) {
        point = candidate;
        sums = at_candidate;
        improved = true;
      }
    }
    if (!improved) break;
  }
  return point;
}

}  // namespace skerry::diffusion
