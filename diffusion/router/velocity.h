// SPDX-License-Identifier: Apache-2.0
// Measures how well an ensemble predicts the velocity on held-back images,
// against the best linear predictor. Does not include LibTorch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace skerry::diffusion {

// Mean squared error per pixel against v = ε − x0.
struct VelocityLevel {
  double t = 0;
  double linear = 0;  // a(t)·x_t + b(t), fitted in closed form on the training images
  double full = 0;    // Σ_k p(k | x_t, t, y) · v_k, the analytic router's mix
  double top1 = 0;    // the router's best expert
  // the expert of the image's own partition; the router's best if that expert
  // was removed
  double own = 0;
};
struct VelocityMeasurement {
  std::uint64_t images = 0;
  std::vector<VelocityLevel> levels;  // t = .2, .5, .8
  bool below_linear() const;          // full < linear at every level
};

// Measures on at most `limit` images of the dataset's test half. It uses their
// labels and the router of the ensemble folder. `device` as in TrainSpec,
// `precision` fp32 or bf16.
// ON FAILURE: kInvalid: dataset and ensemble do not match.
Result<VelocityMeasurement> measure_velocity(const std::string& ensemble_folder,
                                             const std::string& dataset_folder, std::uint64_t limit,
                                             int device, const std::string& precision = "fp32");

}  // namespace skerry::diffusion
