// SPDX-License-Identifier: Apache-2.0
// Images on their way from a file to the training set: decoding (PNG, JPEG,
// WebP) and the resize to a square. Plain values, no state: any thread. Bytes
// that are no image, or half of one, come back as kCorrupt with the reason.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace skerry::diffusion {

struct Image {
  int width = 0;
  int height = 0;
  int channels = 0;                  // 1 grey, 3 RGB
  std::vector<std::uint8_t> pixels;  // [height, width, channels]
};

// Images with more pixels than this are refused: nothing that trains at a few
// hundred pixels a side needs them.
constexpr std::int64_t kMaxImagePixels = 100'000'000;

// By the first bytes, not by a name. Always RGB; transparency is laid on white.
// A truncated file is corrupt, and so is one of more than `max_pixels`.
Result<Image> decode_image(std::string_view bytes, std::int64_t max_pixels = kMaxImagePixels);
Result<Image> decode_png(std::string_view bytes, std::int64_t max_pixels = kMaxImagePixels);
Result<Image> decode_jpeg(std::string_view bytes, std::int64_t max_pixels = kMaxImagePixels);
Result<Image> decode_webp(std::string_view bytes, std::int64_t max_pixels = kMaxImagePixels);

// The shorter side becomes `size` (bilinear, widened when shrinking so that
// nothing aliases), then the centre is cut out. An image of that size already
// is copied bit for bit. REQUIRES: size >= 1 and a non-empty image.
Image centre_square(const Image& image, int size);

// Every pixel has red = green = blue.
bool is_grey(const Image& image);

}  // namespace skerry::diffusion
