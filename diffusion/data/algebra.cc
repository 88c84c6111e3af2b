// SPDX-License-Identifier: Apache-2.0
#include "diffusion/data/algebra.h"

#include <torch/torch.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "base/random.h"
#include "diffusion/data/moments.h"
#include "diffusion/runtime/device.h"

namespace skerry::diffusion {
namespace {

constexpr std::size_t kBlockFloats = std::size_t{1}
                                     << 20;  // of one block of images: 4 MiB, which a cache holds
constexpr std::size_t kMinBlockRows = 64;
constexpr std::size_t kOversample = 8;
constexpr int kSubspacePasses = 4;
constexpr float kLeastResidual = 1e-6F;  // keeps log-densities finite for images that are all alike

// body(x) for block after block of x − mean, [b, d]. The block is one buffer,
// used again: body must not keep it.
template <class Body>
void for_blocks(const PixelView& pixels, std::span<const std::uint32_t> rows,
                const std::vector<float>& mean, const Body& body) {
  const std::size_t d = pixels.dimensions();
  const std::size_t block =
      std::min(rows.size(), std::max<std::size_t>(kMinBlockRows, kBlockFloats / d));
  const torch::Tensor buffer =
      torch::empty({static_cast<std::int64_t>(block), static_cast<std::int64_t>(d)});
  for (std::size_t begin = 0; begin < rows.size(); begin += block) {
    const std::size_t n = std::min(block, rows.size() - begin);
    float* out = buffer.data_ptr<float>();
    for (const std::uint32_t row : rows.subspan(begin, n)) {
      pixels.read(row, {out, d});
      for (std::size_t i = 0; i < d; ++i) out[i] -= mean[i];
      out += d;
    }
    body(buffer.slice(0, 0, static_cast<std::int64_t>(n)));
  }
}

std::vector<float> to_vector(const torch::Tensor& tensor) {
  const torch::Tensor flat = tensor.to(torch::kF32).contiguous();
  return {flat.data_ptr<float>(), flat.data_ptr<float>() + flat.numel()};
}

torch::Tensor as_matrix(const std::vector<float>& values, std::size_t columns) {
  const auto c = static_cast<std::int64_t>(columns);
  return torch::from_blob(const_cast<float*>(values.data()),
                          {static_cast<std::int64_t>(values.size()) / c, c});
}

torch::Tensor random_start(std::size_t d, std::size_t columns, std::uint64_t seed) {
  torch::Tensor start =
      torch::empty({static_cast<std::int64_t>(d), static_cast<std::int64_t>(columns)});
  Stream stream(Position{.seed = seed, .step = 2, .purpose = Purpose::kCluster});
  stream.fill_normal({start.data_ptr<float>(), d * columns});
  return start;
}

// One block's squared distances without the points' own lengths: [b, F].
torch::Tensor relative_distances(const torch::Tensor& points, const torch::Tensor& centroids) {
  return torch::addmm(centroids.square().sum(1).unsqueeze(0), points, centroids.t(), 1, -2);
}

torch::Tensor seed_centroids(const torch::Tensor& points, std::size_t clusters,
                             std::uint64_t seed) {
  // A sixteenfold sample is enough to draw seeds from.
  const std::int64_t stride =
      std::max<std::int64_t>(1, points.size(0) / static_cast<std::int64_t>(clusters * 16));
  const torch::Tensor pool =
      points.slice(0, 0, c10::nullopt, stride).contiguous();  // [s, features]
  const torch::Tensor lengths = pool.square().sum(1);
  const auto size = static_cast<std::size_t>(pool.size(0));
  Stream stream(Position{.seed = seed, .purpose = Purpose::kCluster});
  std::vector<std::int64_t> chosen{static_cast<std::int64_t>(stream.below(size))};
  std::vector<float> nearest(size, std::numeric_limits<float>::infinity());
  while (chosen.size() < clusters) {
    const torch::Tensor last = pool[chosen.back()];
    const torch::Tensor distance = lengths - 2 * torch::mv(pool, last) + last.square().sum();
    const float* fresh = distance.data_ptr<float>();
    double total = 0;
    for (std::size_t i = 0; i < size; ++i) {
      const float d = fresh[i] < 1e-6F ? 0.F : fresh[i];  // rounding must not seed one point twice
      nearest[i] = std::min(nearest[i], d);
      total += nearest[i];
    }
    if (total <= 0) break;
    double left = stream.uniform() * total;
    std::size_t next = size;
    for (std::size_t i = 0; i < size && left >= 0; ++i) {
      if (nearest[i] <= 0) continue;
      next = i;
      left -= nearest[i];
    }
    chosen.push_back(static_cast<std::int64_t>(next));
  }
  return pool.index_select(0, torch::tensor(chosen));
}

// Centroids at the mean of their points; one without points stays where it is.
void recentre(std::vector<float>& centroids, const std::vector<float>& points,
              const std::vector<std::uint32_t>& nearest, std::size_t features) {
  std::vector<double> sum(centroids.size());
  std::vector<std::uint64_t> count(centroids.size() / features);
  for (std::size_t i = 0; i < nearest.size(); ++i) {
    ++count[nearest[i]];
    double* row = &sum[nearest[i] * features];
    for (std::size_t f = 0; f < features; ++f) row[f] += points[i * features + f];
  }
  for (std::size_t j = 0; j < count.size(); ++j) {
    if (count[j] == 0) continue;
    for (std::size_t f = 0; f < features; ++f) {
      centroids[j * features + f] =
          static_cast<float>(sum[j * features + f] / static_cast<double>(count[j]));
    }
  }
}

FineClusters drop_empty(std::vector<float> centroids, std::vector<std::uint32_t> nearest,
                        std::size_t features) {
  std::vector<std::uint64_t> count(centroids.size() / features);
  for (const std::uint32_t j : nearest) ++count[j];
  FineClusters out;
  std::vector<std::uint32_t> renamed(count.size());
  for (std::size_t j = 0; j < count.size(); ++j) {
    if (count[j] == 0) continue;
    renamed[j] = static_cast<std::uint32_t>(out.counts.size());
    out.counts.push_back(count[j]);
    const float* row = &centroids[j * features];
    out.centroids.insert(out.centroids.end(), row, row + features);
  }
  for (std::uint32_t& j : nearest) j = renamed[j];
  out.nearest = std::move(nearest);
  return out;
}

}  // namespace

void set_algebra_threads(int threads) {
  SKERRY_CHECK(open_device(-1, static_cast<std::uint32_t>(threads)).has_value(),
               "a CPU has threads");
}

GaussianStatistics fit_gaussian(const PixelView& pixels, std::span<const std::uint32_t> rows,
                                std::size_t rank, std::uint64_t seed) {
  const torch::NoGradGuard no_grad;
  const std::size_t d = pixels.dimensions();
  SKERRY_CHECK(!rows.empty() && d >= 2, "no images to fit a Gaussian to");
  rank = std::min({rank, d - 1, std::max<std::size_t>(1, rows.size() - 1)});
  const PixelMoments moments = pixel_moments(pixels, rows);
  const std::vector<float> mean(moments.mean.begin(), moments.mean.end());
  const std::size_t columns = std::min(d, rank + kOversample);
  torch::Tensor q = std::get<0>(torch::linalg_qr(random_start(d, columns, seed)));  // [d, columns]
  for (int pass = 0; pass < kSubspacePasses; ++pass) {
    torch::Tensor y = torch::zeros_like(q);
    for_blocks(pixels, rows, mean,
               [&](const torch::Tensor& x) { y.addmm_(x.t(), torch::mm(x, q)); });
    // A hint of the start keeps the columns independent where the images span
    // fewer dimensions.
    q = std::get<0>(torch::linalg_qr(y / static_cast<double>(rows.size()) + 1e-7 * q));
  }
  torch::Tensor scatter = torch::zeros({q.size(1), q.size(1)}, torch::kF64);
  for_blocks(pixels, rows, mean, [&](const torch::Tensor& x) {
    const torch::Tensor z = torch::mm(x, q).to(torch::kF64);
    scatter.addmm_(z.t(), z);
  });
  const auto [values, vectors] =
      torch::linalg_eigh(scatter / static_cast<double>(rows.size()), "L");
  const auto r = static_cast<std::int64_t>(rank);
  const torch::Tensor variances = values.flip(0).slice(0, 0, r).clamp_min(0);
  const torch::Tensor components =
      torch::mm(q, vectors.flip(1).slice(1, 0, r).to(torch::kF32));  // [d, r]
  const double all = std::accumulate(moments.variance.begin(), moments.variance.end(), 0.0);
  const double rest = all - variances.sum().item<double>();
  return {mean, to_vector(components), to_vector(variances),
          std::max(kLeastResidual, static_cast<float>(rest / static_cast<double>(d - rank)))};
}

std::vector<float> image_features(const PixelView& pixels, std::span<const std::uint32_t> rows,
                                  const GaussianStatistics& whole, std::size_t feature_count) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor basis = as_matrix(whole.components, whole.rank())
                                  .slice(1, 0, static_cast<std::int64_t>(feature_count))
                                  .contiguous();
  std::vector<float> out;
  out.reserve(rows.size() * feature_count);
  for_blocks(pixels, rows, whole.mean, [&](const torch::Tensor& x) {
    torch::Tensor f = torch::mm(x, basis);
    f /= f.norm(2, 1, true).clamp_min(1e-12);
    const std::vector<float> values = to_vector(f);
    out.insert(out.end(), values.begin(), values.end());
  });
  return out;
}

std::vector<std::uint32_t> nearest_centroids(const std::vector<float>& points,
                                             const std::vector<float>& centroids,
                                             std::size_t features) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor all = as_matrix(points, features), centres = as_matrix(centroids, features);
  const auto block = static_cast<std::int64_t>(
      std::max<std::size_t>(1, kBlockFloats * features / centroids.size()));
  std::vector<std::uint32_t> out;
  out.reserve(points.size() / features);
  for (std::int64_t begin = 0; begin < all.size(0); begin += block) {
    const torch::Tensor part = all.slice(0, begin, std::min(begin + block, all.size(0)));
    const torch::Tensor nearest = relative_distances(part, centres).argmin(1);
    const auto* index = nearest.data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < nearest.numel(); ++i)
      out.push_back(static_cast<std::uint32_t>(index[i]));
  }
  return out;
}

FineClusters fine_clusters(const std::vector<float>& points, std::size_t features,
                           std::size_t clusters, std::uint64_t seed, const ProgressFn& progress) {
  constexpr std::uint64_t kIterations = 12;
  constexpr std::size_t kPointsPerCluster =
      256;  // more points do not place centroids better, only slower
  const torch::NoGradGuard no_grad;
  const torch::Tensor all = as_matrix(points, features);
  const std::int64_t stride = std::max<std::int64_t>(
      1, all.size(0) / static_cast<std::int64_t>(clusters * kPointsPerCluster));
  const std::vector<float> sample =
      stride == 1 ? points : to_vector(all.slice(0, 0, c10::nullopt, stride));
  std::vector<float> centroids = to_vector(seed_centroids(all, clusters, seed));
  std::vector<std::uint32_t> nearest;
  for (std::uint64_t i = 0; i < kIterations; ++i) {
    progress({"cluster", i, kIterations});
    std::vector<std::uint32_t> fresh = nearest_centroids(sample, centroids, features);
    if (fresh == nearest) break;
    nearest = std::move(fresh);
    recentre(centroids, sample, nearest, features);
  }
  progress({"cluster", kIterations, kIterations});
  // Dropping a centroid that is nearest to nothing changes no point's nearest.
  return drop_empty(centroids, nearest_centroids(points, centroids, features), features);
}

}  // namespace skerry::diffusion
