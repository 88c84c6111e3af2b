// SPDX-License-Identifier: Apache-2.0
#include "diffusion/data/moments.h"

#include <algorithm>

namespace skerry::diffusion {
namespace {

PixelMoments latent_moments(const PixelView& latents, std::span<const std::uint32_t> rows) {
  const std::size_t d = latents.dimensions();
  std::vector<float> values(d);
  PixelMoments out{std::vector<double>(d), std::vector<double>(d)};
  for (const std::uint32_t row : rows) {
    latents.read(row, values);
    for (std::size_t i = 0; i < d; ++i) {
      out.mean[i] += values[i];
      out.variance[i] += double{values[i]} * values[i];
    }
  }
  const auto n = static_cast<double>(rows.size());
  for (std::size_t i = 0; i < d; ++i) {
    out.mean[i] /= n;
    out.variance[i] = std::max(0.0, out.variance[i] / n - out.mean[i] * out.mean[i]);
  }
  return out;
}

}  // namespace

PixelMoments pixel_moments(const PixelView& pixels, std::span<const std::uint32_t> rows) {
  if (pixels.latents) return latent_moments(pixels, rows);
  const std::size_t d = pixels.dimensions();
  std::vector<std::uint64_t> sum(d), square(d);
  for (const std::uint32_t row : rows) {
    const auto image = pixels.image(row);
    for (std::size_t i = 0; i < d; ++i) {
      sum[i] += image[i];
      square[i] += std::uint64_t{image[i]} * image[i];
    }
  }
  const auto n = static_cast<double>(rows.size());
  PixelMoments out{std::vector<double>(d), std::vector<double>(d)};
  for (std::size_t i = 0; i < d; ++i) {
    const double level = static_cast<double>(sum[i]) / n;
    out.mean[i] = level / 127.5 - 1;
    out.variance[i] = (static_cast<double>(square[i]) / n - level * level) / (127.5 * 127.5);
  }
  return out;
}

}  // namespace skerry::diffusion
