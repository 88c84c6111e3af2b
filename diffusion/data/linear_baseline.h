// SPDX-License-Identifier: Apache-2.0
// The baseline of a trained expert: the best velocity predictor that is linear
// in x_t.
#pragma once

#include <cstdint>
#include <span>

#include "diffusion/formats/pixels.h"
#include "diffusion/router/statistics.h"

namespace skerry::diffusion {

// Fills linear_a and linear_b of `shared`: a(t)·x_t + b(t), one a, and one b
// for each pixel. They minimise the squared error to v = ε − x0 over the images
// `rows` and all noise, at kLinearTimes. In closed form, with V the mean
// variance of a pixel:
//   a = (t − (1 − t)·V) / ((1 − t)²·V + t²)
//   b = −(1 + a·(1 − t))·mean
void fit_linear_baseline(const PixelView& pixels, std::span<const std::uint32_t> rows,
                         RouterStatistics& shared);

}  // namespace skerry::diffusion
