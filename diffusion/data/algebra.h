// SPDX-License-Identifier: Apache-2.0
// Linear algebra over a set of images, behind plain values: principal
// components, features, fine k-means. Pixels are taken as x = u8 / 127.5 − 1,
// latents as they are, and streamed in blocks. Same input, seed and threads:
// same bytes. Any one thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "diffusion/formats/pixels.h"
#include "diffusion/formats/progress.h"
#include "diffusion/router/statistics.h"

namespace skerry::diffusion {

// Threads of matrix products, and what open_device() sets beside, for the whole
// process.
void set_algebra_threads(int threads);

// Mean, the leading `rank` principal components (fewer where rows or dimensions
// are fewer) and the mean variance of the rest, of the images `rows`. Subspace
// iteration: Halko, Martinsson & Tropp, "Finding structure with randomness",
// 2011. REQUIRES: rows not empty, at least 2 dimensions.
GaussianStatistics fit_gaussian(const PixelView& pixels, std::span<const std::uint32_t> rows,
                                std::size_t rank, std::uint64_t seed);

// Unit-length features [rows, feature_count] of the images `rows`.
std::vector<float> image_features(const PixelView& pixels, std::span<const std::uint32_t> rows,
                                  const GaussianStatistics& whole, std::size_t feature_count);

struct FineClusters {
  std::vector<float> centroids;        // [F, features]
  std::vector<std::uint64_t> counts;   // [F] points nearest to each, none zero
  std::vector<std::uint32_t> nearest;  // [points]
};
// k-means from k-means++-like seeds (Arthur & Vassilvitskii, 2007). F is
// `clusters` or fewer: points that coincide share one, and an empty cluster is
// dropped.
FineClusters fine_clusters(const std::vector<float>& points, std::size_t features,
                           std::size_t clusters, std::uint64_t seed, const ProgressFn& progress);

// Index of the nearest centroid for each point, the lowest on a tie.
std::vector<std::uint32_t> nearest_centroids(const std::vector<float>& points,
                                             const std::vector<float>& centroids,
                                             std::size_t features);

}  // namespace skerry::diffusion
