#include "diffusion/data/image.h"

#include "base/check.h"
#include "tests/fuzz/targets.h"

namespace skerry::fuzz {

using namespace diffusion;

Verdict image(std::string_view input) {
  constexpr std::int64_t kPixels = 1 << 16;  // bounds the time that one input takes
  constexpr int kSide = 8;
  const auto decoded = decode_image(input, kPixels);
  if (!decoded) {
    SKERRY_CHECK(!decoded.error().message.empty(), "refused without a reason");
    return Verdict::kRefused;
  }
  SKERRY_CHECK(decoded->width > 0 && decoded->height > 0 && decoded->channels == 3, "an image without size");
  const std::int64_t pixels = std::int64_t{decoded->width} * decoded->height;
  SKERRY_CHECK(pixels <= kPixels && decoded->pixels.size() == static_cast<std::size_t>(pixels) * 3,
               "pixels do not fill the image");
  const Image square = centre_square(*decoded, kSide);
  SKERRY_CHECK(square.width == kSide && square.height == kSide && square.pixels.size() == kSide * kSide * 3,
               "the middle is no square");
  return Verdict::kAccepted;
}

}  // namespace skerry::fuzz
