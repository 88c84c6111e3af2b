// SPDX-License-Identifier: Apache-2.0
// Held-back images at a noise level, to fit and measure with. Includes
// LibTorch: for this folder only.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "diffusion/router/measure.h"

namespace skerry::diffusion {

struct NoisedImages {
  at::Tensor x_t;       // [b, d] = (1 − t)·x0 + t·ε
  at::Tensor velocity;  // [b, d] = ε − x0
};

// RETURNS: images begin … end − 1 of `images`. The noise of an image depends on
// (seed, draw, its place) alone.
NoisedImages noised(const RoutedImages& images, std::size_t begin, std::size_t end, double t,
                    std::uint64_t seed, std::uint64_t draw);

// RETURNS: at most `limit` of the images, spread evenly.
RoutedImages thinned(const RoutedImages& images, std::size_t limit);

constexpr std::size_t kNoisedBlockRows = 256;

// Calls body(begin, NoisedImages) for block after block.
template <class Body>
void for_noised(const RoutedImages& images, double t, std::uint64_t seed, std::uint64_t draw,
                const Body& body) {
  for (std::size_t begin = 0; begin < images.rows.size(); begin += kNoisedBlockRows) {
    body(begin, noised(images, begin, std::min(images.rows.size(), begin + kNoisedBlockRows), t,
                       seed, draw));
  }
}

}  // namespace skerry::diffusion
