// SPDX-License-Identifier: Apache-2.0
// Linear algebra over a set of images, behind plain values: principal
// components, features, fine k-means. It takes pixels as x = u8 / 127.5 − 1 and
// latents unchanged, in blocks. The same input, seed and number of threads give
// the same bytes.
// THREADS: any, one at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "diffusion/formats/pixels.h"
#include "diffusion/formats/progress.h"
#include "diffusion/router/statistics.h"

namespace skerry::diffusion {

// Sets the threads of matrix products for the whole process, with the other
// settings of open_device().
void set_algebra_threads(int threads);

// RETURNS: of the images `rows`, the mean, the leading `rank` principal
// components, and the mean variance of the rest. There are fewer components if
// rows or dimensions are fewer. Subspace iteration: Halko, Martinsson & Tropp,
// "Finding structure with randomness", 2011.
// REQUIRES: rows not empty, at least 2 dimensions.
GaussianStatistics fit_gaussian(const PixelView& pixels, std::span<const std::uint32_t> rows,
                                std::size_t rank, std::uint64_t seed);

// RETURNS: unit-length features [rows, feature_count] of the images `rows`.
std::vector<float> image_features(const PixelView& pixels, std::span<const std::uint32_t> rows,
                                  const GaussianStatistics& whole, std::size_t feature_count);

struct FineClusters {
  std::vector<float> centroids;        // [F, features]
  std::vector<std::uint64_t> counts;   // [F] points nearest to each, never zero
  std::vector<std::uint32_t> nearest;  // [points]
};
// k-means with seeds in the manner of k-means++ (Arthur & Vassilvitskii, 2007).
// F is at most `clusters`: equal points share a cluster, and empty clusters are
// dropped.
FineClusters fine_clusters(const std::vector<float>& points, std::size_t features,
                           std::size_t clusters, std::uint64_t seed, const ProgressFn& progress);

// RETURNS: the index of the nearest centroid for each point, the lowest on a
// tie.
std::vector<std::uint32_t> nearest_centroids(const std::vector<float>& points,
                                             const std::vector<float>& centroids,
                                             std::size_t features);

}  // namespace skerry::diffusion
