// SPDX-License-Identifier: Apache-2.0
// The analytic router's statistics as plain values: those of the whole set,
// shared by all experts, and those of each partition. An expert joins or leaves
// with only its own PartitionStatistics. Does not include LibTorch.
// ON FAILURE: kCorrupt names a file whose tensors are missing, of another type
// or contradictory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "diffusion/formats/latents.h"
#include "diffusion/router/prompt_shares.h"
#include "storage/safetensors.h"

namespace skerry::diffusion {

// N(mean, U·diag(variances)·Uᵀ + residual·(I − UUᵀ)): the leading principal
// components, and one variance for the rest.
struct GaussianStatistics {
  std::vector<float> mean;        // [d]
  std::vector<float> components;  // U [d, r], orthonormal columns, by falling variance
  std::vector<float> variances;   // [r]
  float residual = 0;
  std::size_t dimensions() const { return mean.size(); }
  std::size_t rank() const { return variances.size(); }
};

struct RouterStatistics {
  // A feature is the first `feature_count` coordinates of (x − mean) in the
  // basis, scaled to length 1.
  GaussianStatistics whole;
  std::size_t feature_count = 0;
  std::vector<float> fine_centroids;  // [F, feature_count]
  std::vector<std::int32_t> table;    // [F] expert of each fine centroid
  // log p(k | x_t, t) = log π_k + a(t)·Gaussian view + b(t)·feature view +
  // const; a and b by levels of t, ascending.
  std::vector<float> levels;
  std::vector<float> curve_gaussian;
  std::vector<float> curve_feature;
  // The best predictor a·x_t + b of the velocity at t = kLinearTimes: one
  // scalar a, and one b for each pixel.
  std::vector<float> linear_a;  // [3]
  std::vector<float> linear_b;  // [3, d]
  // For a dataset of latents: their scaling, so that samples can be decoded. It
  // is here because this file goes wherever an ensemble goes.
  std::optional<LatentScaling> latents;
  std::optional<CaptionStatistics> captions;  // none: the dataset has none
};
inline constexpr double kLinearTimes[] = {.2, .5, .8};

struct PartitionStatistics {
  GaussianStatistics gaussian;
  std::vector<std::int64_t> label_counts;  // [classes + 1], the last: unlabelled
  std::int64_t samples = 0;
};

Result<void> write_router_statistics(const std::string& path, const RouterStatistics& statistics);
Result<void> write_partition_statistics(const std::string& path,
                                        const PartitionStatistics& statistics);
Result<RouterStatistics> read_router_statistics(const std::string& path);
// RETURNS: only its `latents`, from that file when open; `path` is for the
// message.
Result<std::optional<LatentScaling>> latent_scaling_in(const storage::Safetensors& file,
                                                       const std::string& path);
Result<PartitionStatistics> read_partition_statistics(const std::string& path);

struct RouterFolder {
  // its table names experts by their place in `partitions`; −1: an absent one
  RouterStatistics shared;
  std::vector<PartitionStatistics> partitions;  // [K]
  std::vector<std::int32_t> indices;            // [K] of the partitions, ascending
  std::size_t whole_count = 0;                  // partitions of the dataset, absent ones included

  std::int32_t place_of(std::int32_t partition) const;  // in `partitions`; −1: absent
};
// Reads router.safetensors and each partition-<k>.safetensors of a dataset
// folder or an ensemble's router/.
Result<RouterFolder> read_router_folder(const std::string& folder);

}  // namespace skerry::diffusion
