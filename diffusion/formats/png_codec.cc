// SPDX-License-Identifier: Apache-2.0
#include <png.h>

#include <cstring>

#include "base/text.h"
#include "diffusion/formats/image.h"

namespace skerry::diffusion {

Result<Image> decode_png(std::string_view bytes, std::int64_t max_pixels) {
  png_image png;
  std::memset(&png, 0, sizeof png);
  png.version = PNG_IMAGE_VERSION;
  if (png_image_begin_read_from_memory(&png, bytes.data(), bytes.size()) == 0) {
    return fail(ErrorCode::kCorrupt, text("PNG: ", png.message));
  }
  if (std::int64_t{png.width} * png.height > max_pixels) {
    png_image_free(&png);
    return fail(ErrorCode::kCorrupt,
                text("PNG of ", png.width, "x", png.height, " pixels is too large"));
  }
  png.format = PNG_FORMAT_RGB;
  Image image{static_cast<int>(png.width), static_cast<int>(png.height), 3, {}};
  image.pixels.resize(PNG_IMAGE_SIZE(png));
  const png_color white{255, 255, 255};
  if (png_image_finish_read(&png, &white, image.pixels.data(), 0, nullptr) == 0) {
    return fail(ErrorCode::kCorrupt, text("PNG: ", png.message));
  }
  return image;
}

}  // namespace skerry::diffusion
