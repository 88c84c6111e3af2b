// SPDX-License-Identifier: Apache-2.0
// Fits the two scalars of the router at one noise level by cross-entropy: log
// p(k) = prior_k + a·gaussian_k + b·feature_k + const. The loss is convex in
// (a, b), so Newton's method finds them. Plain values, no state.
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

// A mild prior bounds the result for few samples, where the views may separate
// all of them.
CurvePoint fit_curve_point(const ViewScores& scores);
double cross_entropy(const ViewScores& scores, const CurvePoint& point);

}  // namespace skerry::diffusion
