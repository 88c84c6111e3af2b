// SPDX-License-Identifier: Apache-2.0
// Mean and variance of each pixel over a set of images, or of each value of
// latents, in the model's range. Sums over pixels are whole numbers, so they
// are exact in any order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "diffusion/formats/pixels.h"

namespace skerry::diffusion {

struct PixelMoments {
  std::vector<double> mean;      // [d]
  std::vector<double> variance;  // [d]
};
// REQUIRES: rows not empty.
PixelMoments pixel_moments(const PixelView& pixels, std::span<const std::uint32_t> rows);

}  // namespace skerry::diffusion
