// SPDX-License-Identifier: Apache-2.0
// π(expert | prompt), by which the ancestral route draws the expert of a
// prompt: a k-NN over pooled captions of the training images. Routers of x_t
// see no text. Does not include LibTorch.
// THREADS: any.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "storage/safetensors.h"

namespace skerry::diffusion {

constexpr std::size_t kMostCaptionCentroids = 4096;

// Part of router.safetensors if the dataset has captions.
struct CaptionStatistics {
  std::size_t dim = 0;                   // of a token
  std::vector<std::uint16_t> centroids;  // F16 [F, dim], of length 1
  std::vector<std::int32_t> counts;      // [F, partitions] training images
  double sharpness = 1;

  std::size_t size() const { return dim == 0 ? 0 : centroids.size() / dim; }
  std::size_t partitions() const { return size() == 0 ? 0 : counts.size() / size(); }
};

inline constexpr const char* kCaptionSharpness = "caption_sharpness";  // in the metadata
// RETURNS: the tensors caption_centroids and caption_counts.
// LIFETIME: views of `statistics`.
std::vector<storage::TensorView> tensors_of(const CaptionStatistics& statistics);
// RETURNS: those of a router.safetensors; none: its dataset has no captions.
// ON FAILURE: kCorrupt; `path` is for the message.
Result<std::optional<CaptionStatistics>> caption_statistics_in(const storage::Safetensors& file,
                                                               const std::string& path);

// RETURNS: [dim] the mean of a caption's tokens F16 [L, dim], of length 1.
// REQUIRES: at least one token.
std::vector<float> pooled(std::string_view tokens, std::size_t dim);

class PromptShares {
 public:
  // `present`: the partitions whose experts there are, ascending. The others
  // count for nothing.
  PromptShares(const CaptionStatistics& statistics, std::vector<std::int32_t> present);

  //   π(k | p) ∝ Σ_i n_ik · exp(s · (cos(p, c_i) − max_j cos(p, c_j))) + π_k
  // Centroid c_i stands for n_ik images of partition k. Cosines are of what
  // differs from the centroids' mean.
  // RETURNS: [present].
  std::vector<double> of(std::span<const float> pooled) const {
    return of(pooled, statistics_.sharpness);
  }
  std::vector<double> of(std::span<const float> pooled, double sharpness) const;

 private:
  std::vector<float> centred(std::span<const float> pooled) const;

  CaptionStatistics statistics_;
  std::vector<std::int32_t> present_;
  std::vector<float> mean_;       // [dim]
  std::vector<float> centroids_;  // [F, dim], less the mean, of length 1
  std::vector<double> prior_;     // [present]
};

// Sets the sharpness under which held-out captions are likeliest to be of their
// partitions. `held_out`: pooled captions and their partitions.
void fit_sharpness(CaptionStatistics& statistics,
                   const std::vector<std::pair<std::vector<float>, std::int32_t>>& held_out);

}  // namespace skerry::diffusion
