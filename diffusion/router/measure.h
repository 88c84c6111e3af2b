// SPDX-License-Identifier: Apache-2.0
// Fits the router's curves on held-back images, and measures the router on
// others. Does not include LibTorch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "diffusion/data/held_back.h"
#include "diffusion/formats/pixels.h"
#include "diffusion/router/statistics.h"

namespace skerry::diffusion {

// Images with their partitions, as indices into a view that another object
// owns.
struct RoutedImages {
  PixelView pixels;
  std::vector<std::uint32_t> rows;
  // [rows] by their place in the router; −1: not one of its partitions
  std::vector<std::int32_t> partitions;
  std::vector<std::int32_t> labels;  // [rows], or empty
};
// RETURNS: all images of a test half, checked against the router's size and
// number of experts. Views into `test`.
Result<RoutedImages> test_images(const std::string& dataset_folder, const HeldBack& test,
                                 const RouterFolder& statistics);

// Fills levels, curve_gaussian and curve_feature of `statistics.shared`.
// Without images the curves are a mild guess.
void fit_curves(RouterFolder& statistics, const RoutedImages& images, std::uint64_t seed);

struct RouterLevel {
  double t = 0;
  // of all images; one that belongs to no expert of the router counts as wrong
  double accuracy = 0;
  double cross_entropy = 0;  // of the images that belong to one
};
struct RouterMeasurement {
  std::uint64_t images = 0;
  std::vector<RouterLevel> levels;
  double microseconds = 0;  // elapsed time of an answer, per image
  double mean_cross_entropy() const;
};
// Measures without labels, on at most `limit` images of the dataset's
// test.safetensors, spread evenly. Uses the statistics of `router_folder`: the
// dataset folder itself, or an ensemble's router/. Every router gets the same
// images and noise.
Result<RouterMeasurement> measure_router(const std::string& dataset_folder,
                                         const std::string& router_folder,
                                         const std::vector<double>& levels, std::uint64_t limit);
// Measures the learned router whose weights are in this file. `device` as in
// TrainSpec.
Result<RouterMeasurement> measure_learned_router(const std::string& dataset_folder,
                                                 const std::string& weights,
                                                 const std::vector<double>& levels,
                                                 std::uint64_t limit, int device);
// The levels that ddm.md's tables show.
std::vector<double> usual_levels();

}  // namespace skerry::diffusion
