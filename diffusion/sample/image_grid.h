// SPDX-License-Identifier: Apache-2.0
// Writes samples as PNG files, alone or in a grid. Does not include LibTorch.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace skerry::diffusion {

struct Picture {
  std::uint32_t width = 0, height = 0;
  std::uint32_t channels = 1;        // 1 grey, 3 colour
  std::vector<std::uint8_t> pixels;  // [height, width, channels]
};

// RETURNS: image `index` of [n,C,S,S] bytes. Of more than three channels it
// shows the first three, of two the first.
Picture picture_of(std::span<const std::uint8_t> images, std::uint32_t channels, std::uint32_t size,
                   std::size_t index);

// RETURNS: a grid with `columns` pictures of one shape in a row, enlarged
// `scale` times, with a light gap between.
// REQUIRES: pictures not empty.
Picture make_grid(const std::vector<Picture>& pictures, std::uint32_t columns, std::uint32_t scale);

// Writes through PATH.partial, so that a failure leaves no incomplete picture.
Result<void> write_png(const std::string& path, const Picture& picture);

}  // namespace skerry::diffusion
