// SPDX-License-Identifier: Apache-2.0
// Decodes images (PNG, JPEG, WebP) and resizes them to squares for the training
// set. Plain values, no state.
// THREADS: any.
// ON FAILURE: kCorrupt, with the reason, for bytes that are no image or a
// truncated one.
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

// decode_image() refuses images with more pixels: training at a few hundred
// pixels a side needs none of them.
constexpr std::int64_t kMaxImagePixels = 100'000'000;

// Recognises the format by the first bytes, not by a name. Always RGB;
// transparent pixels are drawn over white.
// ON FAILURE: kCorrupt for a truncated file or one of more than `max_pixels`.
Result<Image> decode_image(std::string_view bytes, std::int64_t max_pixels = kMaxImagePixels);
Result<Image> decode_png(std::string_view bytes, std::int64_t max_pixels = kMaxImagePixels);
Result<Image> decode_jpeg(std::string_view bytes, std::int64_t max_pixels = kMaxImagePixels);
Result<Image> decode_webp(std::string_view bytes, std::int64_t max_pixels = kMaxImagePixels);

// Scales the shorter side to `size` (bilinear, with a wider filter when
// shrinking, against aliasing), then cuts out the centre. Copies an image of
// that size bit for bit.
// REQUIRES: size >= 1 and a non-empty image.
Image centre_square(const Image& image, int size);

// RETURNS: whether every pixel has red = green = blue.
bool is_grey(const Image& image);

}  // namespace skerry::diffusion
