// SPDX-License-Identifier: Apache-2.0
// How well an ensemble predicts the velocity on held-back images, beside the
// best linear predictor. No LibTorch shows here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace skerry::diffusion {

// Mean squared error a pixel against v = ε − x0.
struct VelocityLevel {
  double t = 0;
  double linear = 0;  // a(t)·x_t + b(t), fitted in closed form on the training images
  double full = 0;    // Σ_k p(k | x_t, t, y) · v_k, the analytic router's mix
  double top1 = 0;    // the router's best expert
  double own =
      0;  // the expert of the image's own partition; the router's best where that one was removed
};
struct VelocityMeasurement {
  std::uint64_t images = 0;
  std::vector<VelocityLevel> levels;  // t = .2, .5, .8
  bool below_linear() const;          // full < linear at every level
};

// On at most `limit` images of the dataset's test half, with their labels and
// the router of the ensemble folder. kInvalid: dataset and ensemble do not
// belong together. `device` as in TrainSpec, `precision` fp32 or bf16.
Result<VelocityMeasurement> measure_velocity(const std::string& ensemble_folder,
                                             const std::string& dataset_folder, std::uint64_t limit,
                                             int device, const std::string& precision = "fp32");

}  // namespace skerry::diffusion
