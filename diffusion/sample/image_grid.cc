// SPDX-License-Identifier: Apache-2.0
#include "diffusion/sample/image_grid.h"

#include <png.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/check.h"
#include "base/text.h"

namespace skerry::diffusion {
namespace {

constexpr std::uint8_t kGapColour = 255;

void blit(const Picture& from, Picture& to, std::uint32_t left, std::uint32_t top,
          std::uint32_t scale) {
  for (std::uint32_t y = 0; y < from.height * scale; ++y) {
    for (std::uint32_t x = 0; x < from.width * scale; ++x) {
      const std::size_t source = (std::size_t{y / scale} * from.width + x / scale) * from.channels;
      const std::size_t target = (std::size_t{top + y} * to.width + left + x) * to.channels;
      std::copy_n(from.pixels.begin() + static_cast<std::ptrdiff_t>(source), from.channels,
                  to.pixels.begin() + static_cast<std::ptrdiff_t>(target));
    }
  }
}

}  // namespace

Picture picture_of(std::span<const std::uint8_t> images, std::uint32_t channels, std::uint32_t size,
                   std::size_t index) {
  const std::size_t plane = std::size_t{size} * size;
  SKERRY_CHECK((index + 1) * channels * plane <= images.size(), "image ", index, " is not there");
  Picture picture{.width = size, .height = size, .channels = channels >= 3 ? 3U : 1U, .pixels = {}};
  picture.pixels.resize(plane * picture.channels);
  for (std::uint32_t c = 0; c < picture.channels; ++c) {
    for (std::size_t i = 0; i < plane; ++i) {
      picture.pixels[i * picture.channels + c] = images[(index * channels + c) * plane + i];
    }
  }
  return picture;
}

Picture make_grid(const std::vector<Picture>& pictures, std::uint32_t columns,
                  std::uint32_t scale) {
  SKERRY_CHECK(!pictures.empty() && columns > 0 && scale > 0, "a grid of nothing");
  const Picture& first = pictures.front();
  const auto count = static_cast<std::uint32_t>(pictures.size());
  columns = std::min(columns, count);
  const std::uint32_t rows = (count + columns - 1) / columns;
  const std::uint32_t gap = scale;
  Picture grid{.width = columns * (first.width * scale + gap) + gap,
               .height = rows * (first.height * scale + gap) + gap,
               .channels = first.channels,
               .pixels = {}};
  grid.pixels.assign(std::size_t{grid.width} * grid.height * grid.channels, kGapColour);
  for (std::uint32_t i = 0; i < count; ++i) {
    SKERRY_CHECK(pictures[i].width == first.width && pictures[i].channels == first.channels,
                 "pictures of one shape");
    blit(pictures[i], grid, gap + (i % columns) * (first.width * scale + gap),
         gap + (i / columns) * (first.height * scale + gap), scale);
  }
  return grid;
}

Result<void> write_png(const std::string& path, const Picture& picture) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    return fail(ErrorCode::kInvalid, text(path, " is no file: name one for the picture"));
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = picture.width;
  image.height = picture.height;
  image.format = picture.channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  const std::string partial = path + ".partial";
  if (png_image_write_to_file(&image, partial.c_str(), 0, picture.pixels.data(), 0, nullptr) == 0) {
    std::remove(partial.c_str());
    return fail(ErrorCode::kIo, text("cannot write ", path, ": ", image.message));
  }
  if (std::rename(partial.c_str(), path.c_str()) != 0) {
    return fail(ErrorCode::kIo, text("cannot rename ", partial, ": ", std::strerror(errno)));
  }
  return {};
}

}  // namespace skerry::diffusion
