// SPDX-License-Identifier: Apache-2.0
// The two scalars of the router at one noise level: log p(k) = prior_k +
// a·gaussian_k + b·feature_k + const, fitted by cross-entropy, which is convex
// in (a, b): Newton's method. Plain values, no state.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace skerry::diffusion {

struct ViewScores {
  std::size_t experts = 0;
  std::vector<float> gaussian;           // [n, experts]
  std::vector<float> feature;            // [n, experts]
  std::vector<float> prior;              // [experts] log π_k
  std::vector<std::int32_t> partitions;  // [n] the truth
};
struct CurvePoint {
  double gaussian = 0;  // a
  double feature = 0;   // b
};

// Few samples pull towards a mild prior instead of running off where the views
// separate them all.
CurvePoint fit_curve_point(const ViewScores& scores);
double cross_entropy(const ViewScores& scores, const CurvePoint& point);

}  // namespace skerry::diffusion
