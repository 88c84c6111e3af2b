// SPDX-License-Identifier: Apache-2.0
#include "diffusion/data/caption_centroids.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "diffusion/data/algebra.h"
#include "diffusion/formats/half.h"

namespace skerry::diffusion {
namespace {

constexpr std::size_t kAtOnce = 1024;  // captions in memory, beside the centroids
constexpr std::size_t kFitted = 512;   // held-out captions

std::vector<float> pooled_rows(const Captions& captions, std::span<const std::uint32_t> numbers) {
  std::vector<float> rows;
  for (const std::uint32_t number : numbers) {
    const std::vector<float> row = pooled(captions.tokens_of(number), captions.dim());
    rows.insert(rows.end(), row.begin(), row.end());
  }
  return rows;
}

// RETURNS: at most `most` of them, evenly spaced.
template <class T>
std::vector<T> evenly(const std::vector<T>& all, std::size_t most) {
  if (all.size() <= most) return all;
  std::vector<T> some;
  for (std::size_t i = 0; i < most; ++i) some.push_back(all[i * all.size() / most]);
  return some;
}

std::vector<std::uint32_t> distinct_captions(const Captions& captions,
                                             const std::vector<std::vector<std::uint32_t>>& rows) {
  std::vector<bool> used(captions.distinct() + 1);
  for (const auto& images : rows)
    for (const std::uint32_t image : images) used[captions.number_of(image)] = true;
  std::vector<std::uint32_t> numbers;
  for (std::uint32_t number = 1; number < used.size(); ++number)
    if (used[number]) numbers.push_back(number);
  return numbers;
}

// Moves the centroids to the mean of the captions that are nearest to them.
// RETURNS: by number of a caption, its centroid.
std::vector<std::uint32_t> gather(const Captions& captions,
                                  const std::vector<std::uint32_t>& numbers,
                                  std::vector<float>& centroids) {
  const std::size_t dim = captions.dim();
  std::vector<std::uint32_t> of(captions.distinct() + 1);
  std::vector<float> sums(centroids.size());
  for (std::size_t begin = 0; begin < numbers.size(); begin += kAtOnce) {
    const auto some = std::span(numbers).subspan(begin, std::min(kAtOnce, numbers.size() - begin));
    const std::vector<float> points = pooled_rows(captions, some);
    const std::vector<std::uint32_t> nearest = nearest_centroids(points, centroids, dim);
    for (std::size_t i = 0; i < some.size(); ++i) {
      of[some[i]] = nearest[i];
      for (std::size_t d = 0; d < dim; ++d) sums[nearest[i] * dim + d] += points[i * dim + d];
    }
  }
  for (std::size_t begin = 0; begin < sums.size(); begin += dim) {
    double square = 0;
    for (std::size_t d = 0; d < dim; ++d) square += double{sums[begin + d]} * sums[begin + d];
    if (square <= 0) continue;  // equal to another one: nothing is nearest to it
    for (std::size_t d = 0; d < dim; ++d)
      centroids[begin + d] = static_cast<float>(sums[begin + d] / std::sqrt(square));
  }
  return of;
}

}  // namespace

std::optional<CaptionStatistics> caption_statistics(
    const Captions& captions, const std::vector<std::vector<std::uint32_t>>& rows,
    std::span<const std::uint32_t> held_out, std::span<const std::int32_t> partitions) {
  const std::vector<std::uint32_t> numbers = distinct_captions(captions, rows);
  if (numbers.empty()) return std::nullopt;
  std::vector<float> centroids = pooled_rows(captions, evenly(numbers, kMostCaptionCentroids));
  const std::vector<std::uint32_t> of = gather(captions, numbers, centroids);
  CaptionStatistics statistics{.dim = captions.dim()};
  for (const float value : centroids) statistics.centroids.push_back(to_half(value));
  statistics.counts.resize(statistics.size() * rows.size());
  for (std::size_t k = 0; k < rows.size(); ++k) {
    for (const std::uint32_t image : rows[k]) {
      const std::uint32_t number = captions.number_of(image);
      if (number > 0) ++statistics.counts[of[number] * rows.size() + k];
    }
  }
  std::vector<std::pair<std::vector<float>, std::int32_t>> captioned;
  std::vector<std::size_t> with_caption;
  for (std::size_t i = 0; i < held_out.size(); ++i)
    if (captions.number_of(held_out[i]) > 0) with_caption.push_back(i);
  for (const std::size_t i : evenly(with_caption, kFitted)) {
    captioned.emplace_back(
        pooled(captions.tokens_of(captions.number_of(held_out[i])), captions.dim()), partitions[i]);
  }
  if (!captioned.empty()) fit_sharpness(statistics, captioned);
  return statistics;
}

}  // namespace skerry::diffusion
