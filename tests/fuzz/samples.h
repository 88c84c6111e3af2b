// SPDX-License-Identifier: Apache-2.0
// What every source of images promises of what it gives, for the targets of the
// single formats.
#pragma once

#include <cstdint>
#include <optional>

#include "base/check.h"
#include "diffusion/formats/source.h"

namespace skerry::fuzz {

inline void check_image(const diffusion::Image& image, int channels) {
  SKERRY_CHECK(image.width > 0 && image.height > 0 && image.channels == channels,
               "an image without size");
  const std::size_t pixels =
      static_cast<std::size_t>(image.width) * static_cast<std::size_t>(image.height);
  SKERRY_CHECK(image.pixels.size() == pixels * static_cast<std::size_t>(channels),
               "pixels do not fill the image");
}

inline void check_latent(const diffusion::Latent& latent) {
  SKERRY_CHECK(latent.channels > 0 && latent.size >= diffusion::kMinLatentSize,
               "a latent without size");
  const std::size_t area =
      static_cast<std::size_t>(latent.size) * static_cast<std::size_t>(latent.size);
  SKERRY_CHECK(latent.values.size() == area * static_cast<std::size_t>(latent.channels),
               "values do not fill the latent");
}

// Reads `source` to its end: how many samples it gave, each of which went
// through `check`; none where it ended in an error. Aborts where it had
// announced another number.
template <class Check>
std::optional<std::uint64_t> read_all(diffusion::Source& source, Check check) {
  std::uint64_t count = 0;
  for (;; ++count) {
    const auto sample = source.next();
    if (!sample) return std::nullopt;
    if (!*sample) break;
    check(**sample);
  }
  const std::uint64_t announced = source.expected_samples();
  SKERRY_CHECK(announced == 0 || count == announced, count, " samples, announced were ", announced);
  return count;
}

}  // namespace skerry::fuzz
