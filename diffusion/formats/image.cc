// SPDX-License-Identifier: Apache-2.0
#include "diffusion/formats/image.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace skerry::diffusion {
namespace {

constexpr std::string_view kPngMagic = "\x89PNG\r\n\x1a\n";
constexpr std::string_view kJpegMagic = "\xff\xd8\xff";

// A RIFF file of that kind; the four bytes between are its length.
bool is_webp(std::string_view bytes) {
  return bytes.starts_with("RIFF") && bytes.size() >= 12 && bytes.substr(8, 4) == "WEBP";
}

// What one output pixel takes from one line of input pixels.
struct Taps {
  int first = 0;
  std::vector<float> weights;
};

// Triangle filter over `span` input pixels from `offset`, spread over `count`
// outputs. Shrinking widens the triangle.
std::vector<Taps> triangle_taps(int input, double offset, double span, int count) {
  std::vector<Taps> taps(static_cast<std::size_t>(count));
  const double scale = span / count;
  const double radius = std::max(1.0, scale);
  for (int i = 0; i < count; ++i) {
    const double centre = offset + (i + 0.5) * scale;
    const int first = std::max(0, static_cast<int>(std::floor(centre - radius)));
    const int last = std::min(input - 1, static_cast<int>(std::ceil(centre + radius)));
    Taps& tap = taps[static_cast<std::size_t>(i)];
    tap.first = first;
    double sum = 0;
    for (int j = first; j <= last; ++j) {
      const double weight = std::max(0.0, 1.0 - std::abs(j + 0.5 - centre) / radius);
      tap.weights.push_back(static_cast<float>(weight));
      sum += weight;
    }
    for (float& weight : tap.weights) weight = static_cast<float>(weight / sum);
  }
  return taps;
}

}  // namespace

Result<Image> decode_image(std::string_view bytes, std::int64_t max_pixels) {
  if (bytes.starts_with(kPngMagic)) return decode_png(bytes, max_pixels);
  if (bytes.starts_with(kJpegMagic)) return decode_jpeg(bytes, max_pixels);
  if (is_webp(bytes)) return decode_webp(bytes, max_pixels);
  return fail(ErrorCode::kCorrupt, bytes.empty() ? "the file is empty"
                                                 : "neither JPEG, PNG nor WebP by its first bytes");
}

Image centre_square(const Image& image, int size) {
  SKERRY_CHECK(size >= 1 && image.width >= 1 && image.height >= 1, "no image to resize");
  if (image.width == size && image.height == size) return image;
  const double side = std::min(image.width, image.height);
  const auto columns = triangle_taps(image.width, (image.width - side) / 2, side, size);
  const auto rows = triangle_taps(image.height, (image.height - side) / 2, side, size);
  const std::size_t channels = static_cast<std::size_t>(image.channels);
  const std::size_t line = static_cast<std::size_t>(size) * channels;

  std::vector<float> narrow(static_cast<std::size_t>(image.height) *
                            line);  // [height, size, channels]
  for (std::size_t y = 0; y < static_cast<std::size_t>(image.height); ++y) {
    const std::uint8_t* source =
        image.pixels.data() + y * static_cast<std::size_t>(image.width) * channels;
    for (std::size_t x = 0; x < static_cast<std::size_t>(size); ++x) {
      const Taps& tap = columns[x];
      for (std::size_t j = 0; j < tap.weights.size(); ++j) {
        const std::uint8_t* pixel = source + (static_cast<std::size_t>(tap.first) + j) * channels;
        for (std::size_t c = 0; c < channels; ++c)
          narrow[y * line + x * channels + c] += tap.weights[j] * pixel[c];
      }
    }
  }
  Image out{size, size, image.channels,
            std::vector<std::uint8_t>(static_cast<std::size_t>(size) * line)};
  std::vector<float> sum(line);
  for (std::size_t y = 0; y < static_cast<std::size_t>(size); ++y) {
    std::fill(sum.begin(), sum.end(), 0.F);
    const Taps& tap = rows[y];
    for (std::size_t j = 0; j < tap.weights.size(); ++j) {
      const float* source = narrow.data() + (static_cast<std::size_t>(tap.first) + j) * line;
      for (std::size_t i = 0; i < line; ++i) sum[i] += tap.weights[j] * source[i];
    }
    for (std::size_t i = 0; i < line; ++i) {
      out.pixels[y * line + i] = static_cast<std::uint8_t>(std::clamp(sum[i] + 0.5F, 0.F, 255.F));
    }
  }
  return out;
}

bool is_grey(const Image& image) {
  if (image.channels == 1) return true;
  for (std::size_t i = 0; i + 2 < image.pixels.size(); i += 3) {
    if (image.pixels[i] != image.pixels[i + 1] || image.pixels[i] != image.pixels[i + 2])
      return false;
  }
  return true;
}

}  // namespace skerry::diffusion
