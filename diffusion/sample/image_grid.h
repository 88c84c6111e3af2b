// SPDX-License-Identifier: Apache-2.0
// Pictures for people: samples as PNG files, alone or in a grid. No LibTorch
// shows here.
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

// Image `index` of [n,C,S,S] bytes. More than three channels show the first
// three, two show the first.
Picture picture_of(std::span<const std::uint8_t> images, std::uint32_t channels, std::uint32_t size,
                   std::size_t index);

// `columns` pictures of one shape in a row, `scale` pixels for one, a light gap
// between. REQUIRES: pictures not empty.
Picture make_grid(const std::vector<Picture>& pictures, std::uint32_t columns, std::uint32_t scale);

// Through PATH.partial, so that a failure leaves no half picture.
Result<void> write_png(const std::string& path, const Picture& picture);

}  // namespace skerry::diffusion
