// SPDX-License-Identifier: Apache-2.0
#include "diffusion/formats/image.h"

#include "tests/fuzz/samples.h"
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
  check_image(*decoded, 3);
  SKERRY_CHECK(std::int64_t{decoded->width} * decoded->height <= kPixels,
               "an image beyond the limit");
  const Image square = centre_square(*decoded, kSide);
  SKERRY_CHECK(
      square.width == kSide && square.height == kSide && square.pixels.size() == kSide * kSide * 3,
      "the middle is no square");
  return Verdict::kAccepted;
}

}  // namespace skerry::fuzz
