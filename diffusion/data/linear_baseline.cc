// SPDX-License-Identifier: Apache-2.0
#include "diffusion/data/linear_baseline.h"

#include <numeric>

#include "diffusion/data/moments.h"

namespace skerry::diffusion {

void fit_linear_baseline(const PixelView& pixels, std::span<const std::uint32_t> rows,
                         RouterStatistics& shared) {
  const PixelMoments moments = pixel_moments(pixels, rows);
  const double variance = std::accumulate(moments.variance.begin(), moments.variance.end(), 0.0) /
                          static_cast<double>(moments.variance.size());
  shared.linear_a.clear();
  shared.linear_b.clear();
  for (const double t : kLinearTimes) {
    const double alpha = 1 - t;
    const double a = (t - alpha * variance) / (alpha * alpha * variance + t * t);
    shared.linear_a.push_back(static_cast<float>(a));
    for (const double m : moments.mean)
      shared.linear_b.push_back(static_cast<float>(-(1 + a * alpha) * m));
  }
}

}  // namespace skerry::diffusion
