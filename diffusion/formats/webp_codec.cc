// SPDX-License-Identifier: Apache-2.0
#include <webp/decode.h>

#include "base/text.h"
#include "diffusion/formats/image.h"

namespace skerry::diffusion {
namespace {

Error broken(std::string_view what) { return fail(ErrorCode::kCorrupt, text("WebP: ", what)); }

// RGBA to RGB.
std::vector<std::uint8_t> on_white(const std::vector<std::uint8_t>& pixels) {
  std::vector<std::uint8_t> out;
  out.reserve(pixels.size() / 4 * 3);
  for (std::size_t i = 0; i < pixels.size(); i += 4) {
    const unsigned alpha = pixels[i + 3];
    for (std::size_t c = 0; c < 3; ++c) {
      out.push_back(
          static_cast<std::uint8_t>((pixels[i + c] * alpha + 255 * (255 - alpha) + 127) / 255));
    }
  }
  return out;
}

}  // namespace

Result<Image> decode_webp(std::string_view bytes, std::int64_t max_pixels) {
  const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
  WebPBitstreamFeatures found{};
  if (WebPGetFeatures(data, bytes.size(), &found) != VP8_STATUS_OK)
    return broken("the header is damaged");
  if (found.has_animation != 0) return broken("an animation, not one image");
  if (std::int64_t{found.width} * found.height > max_pixels) {
    return broken(text(found.width, "x", found.height, " pixels are too many"));
  }
  const int channels = found.has_alpha != 0 ? 4 : 3;
  const auto decode = channels == 4 ? WebPDecodeRGBAInto : WebPDecodeRGBInto;
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(found.width) *
                                   static_cast<std::size_t>(found.height) *
                                   static_cast<std::size_t>(channels));
  if (decode(data, bytes.size(), pixels.data(), pixels.size(), found.width * channels) == nullptr) {
    return broken("the image is damaged or truncated");
  }
  return Image{found.width, found.height, 3, channels == 4 ? on_white(pixels) : std::move(pixels)};
}

}  // namespace skerry::diffusion
