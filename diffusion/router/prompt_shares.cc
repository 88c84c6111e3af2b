// SPDX-License-Identifier: Apache-2.0
#include "diffusion/router/prompt_shares.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "base/text.h"
#include "diffusion/formats/half.h"

namespace skerry::diffusion {
namespace {

constexpr double kLeastSharp = 1, kMostSharp = 1000, kSharper = 1.5;

void make_unit(std::span<float> values) {
  double square = 0;
  for (const float value : values) square += double{value} * value;
  const double length = std::sqrt(square);
  if (length < 1e-12) return;
  for (float& value : values) value = static_cast<float>(value / length);
}

double dot(std::span<const float> a, std::span<const float> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0F);
}

Error broken(const std::string& path, std::string_view what) {
  return fail(ErrorCode::kCorrupt, text(path, ": ", what));
}

}  // namespace

std::vector<storage::TensorView> tensors_of(const CaptionStatistics& statistics) {
  const std::uint64_t size = statistics.size();
  return {{"caption_centroids",
           storage::DType::kF16,
           {size, statistics.dim},
           storage::bytes_of_values<std::uint16_t>(statistics.centroids)},
          {"caption_counts",
           storage::DType::kI32,
           {size, statistics.partitions()},
           storage::bytes_of_values<std::int32_t>(statistics.counts)}};
}

Result<std::optional<CaptionStatistics>> caption_statistics_in(const storage::Safetensors& file,
                                                               const std::string& path) {
  if (file.header().find("caption_centroids") == nullptr) return std::nullopt;
  ASSIGN_OR_RETURN(const storage::TensorView centroids, file.tensor("caption_centroids"));
  ASSIGN_OR_RETURN(const storage::TensorView counts, file.tensor("caption_counts"));
  const auto sharpness = storage::number_in<double>(file.header().metadata, kCaptionSharpness);
  const bool shaped = centroids.dtype == storage::DType::kF16 && centroids.shape.size() == 2 &&
                      counts.dtype == storage::DType::kI32 && counts.shape.size() == 2 &&
                      centroids.shape[0] == counts.shape[0] && centroids.shape[0] >= 1 &&
                      centroids.shape[0] <= kMostCaptionCentroids && centroids.shape[1] >= 1;
  if (!shaped || !sharpness || !(*sharpness > 0 && *sharpness <= kMostSharp)) {
    return broken(path, text("expected caption_centroids F16 [F,D], caption_counts I32 [F,K] and ",
                             kCaptionSharpness, " in its metadata"));
  }
  CaptionStatistics statistics{.dim = centroids.shape[1], .sharpness = *sharpness};
  statistics.centroids.resize(centroids.data.size() / sizeof(std::uint16_t));
  std::memcpy(statistics.centroids.data(), centroids.data.data(), centroids.data.size());
  statistics.counts.resize(counts.data.size() / sizeof(std::int32_t));
  std::memcpy(statistics.counts.data(), counts.data.data(), counts.data.size());
  const bool finite = std::ranges::all_of(
      statistics.centroids, [](std::uint16_t half) { return std::isfinite(from_half(half)); });
  if (!finite || std::ranges::any_of(statistics.counts, [](std::int32_t n) { return n < 0; }))
    return broken(path, "a caption's centroid is not finite, or its count is negative");
  return statistics;
}

std::vector<float> pooled(std::string_view tokens, std::size_t dim) {
  SKERRY_CHECK(tokens.size() >= dim * 2, "a caption of no token");
  std::vector<float> sum(dim);
  for (std::size_t i = 0; i < tokens.size() / 2; ++i) {
    std::uint16_t half = 0;
    std::memcpy(&half, tokens.data() + 2 * i, 2);
    sum[i % dim] += from_half(half);
  }
  make_unit(sum);
  return sum;
}

PromptShares::PromptShares(const CaptionStatistics& statistics, std::vector<std::int32_t> present)
    : statistics_(statistics), present_(std::move(present)), mean_(statistics.dim) {
  const std::size_t dim = statistics_.dim, parts = statistics_.partitions();
  std::erase_if(present_, [&](std::int32_t k) { return static_cast<std::size_t>(k) >= parts; });
  for (const std::uint16_t half : statistics_.centroids) centroids_.push_back(from_half(half));
  double all = 0;
  std::vector<double> mean(dim);
  prior_.assign(present_.size(), 0);
  for (std::size_t i = 0; i < statistics_.size(); ++i) {
    const std::int32_t* const counts = statistics_.counts.data() + i * parts;
    const double images = std::accumulate(counts, counts + parts, 0.0);
    for (std::size_t d = 0; d < dim; ++d) mean[d] += images * centroids_[i * dim + d];
    for (std::size_t p = 0; p < present_.size(); ++p)
      prior_[p] += counts[static_cast<std::size_t>(present_[p])];
    all += images;
  }
  for (std::size_t d = 0; d < dim; ++d) mean_[d] = static_cast<float>(all > 0 ? mean[d] / all : 0);
  const double here = std::accumulate(prior_.begin(), prior_.end(), 0.0);
  for (double& share : prior_)
    share = here > 0 ? share / here : 1 / static_cast<double>(prior_.size());
  for (std::size_t i = 0; i < statistics_.size(); ++i) {
    const std::span<float> row(centroids_.data() + i * dim, dim);
    std::ranges::copy(centred(row), row.begin());
  }
}

std::vector<float> PromptShares::centred(std::span<const float> pooled) const {
  std::vector<float> less(pooled.begin(), pooled.end());
  for (std::size_t d = 0; d < less.size(); ++d) less[d] -= mean_[d];
  make_unit(less);
  return less;
}

std::vector<double> PromptShares::of(std::span<const float> pooled, double sharpness) const {
  const std::vector<float> prompt = centred(pooled);
  const std::size_t dim = statistics_.dim, parts = statistics_.partitions();
  std::vector<double> cosines;
  for (std::size_t i = 0; i < statistics_.size(); ++i)
    cosines.push_back(dot(prompt, {centroids_.data() + i * dim, dim}));
  const double nearest = std::ranges::max(cosines);
  std::vector<double> shares = prior_;
  for (std::size_t i = 0; i < cosines.size(); ++i) {
    const double weight = std::exp(sharpness * (cosines[i] - nearest));
    for (std::size_t p = 0; p < present_.size(); ++p)
      shares[p] += weight * statistics_.counts[i * parts + static_cast<std::size_t>(present_[p])];
  }
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) share /= sum;
  return shares;
}

void fit_sharpness(CaptionStatistics& statistics,
                   const std::vector<std::pair<std::vector<float>, std::int32_t>>& held_out) {
  std::vector<std::int32_t> all(statistics.partitions());
  std::iota(all.begin(), all.end(), 0);
  const PromptShares shares(statistics, all);
  double best = -INFINITY;
  for (double sharpness = kLeastSharp; sharpness <= kMostSharp; sharpness *= kSharper) {
    double likelihood = 0;
    for (const auto& [caption, partition] : held_out)
      likelihood += std::log(shares.of(caption, sharpness)[static_cast<std::size_t>(partition)]);
    if (likelihood <= best) continue;
    best = likelihood;
    statistics.sharpness = sharpness;
  }
}

}  // namespace skerry::diffusion
