// SPDX-License-Identifier: Apache-2.0
#include "diffusion/sample/image_grid.h"

#include <png.h>
#include <sys/stat.h>

#include <filesystem>

#include "base/temp_folder.h"
#include "diffusion/testing/testing.h"

namespace skerry::diffusion {
namespace {

using namespace testing;

Picture read_back(const std::string& path, bool colour) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  EXPECT_NE(png_image_begin_read_from_file(&image, path.c_str()), 0) << image.message;
  image.format = colour ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  Picture picture{
      .width = image.width, .height = image.height, .channels = colour ? 3U : 1U, .pixels = {}};
  picture.pixels.resize(PNG_IMAGE_SIZE(image));
  EXPECT_NE(png_image_finish_read(&image, nullptr, picture.pixels.data(), 0, nullptr), 0);
  return picture;
}

std::vector<std::uint8_t> ramp(std::size_t bytes) {
  std::vector<std::uint8_t> values(bytes);
  for (std::size_t i = 0; i < bytes; ++i) values[i] = static_cast<std::uint8_t>(i * 7);
  return values;
}

TEST(ImageGrid, GreyAndColourComeBackFromTheFile) {
  const TempFolder folder;
  for (const std::uint32_t channels : {1U, 3U}) {
    const auto images = ramp(std::size_t{2} * channels * 16);
    const Picture picture = picture_of(images, channels, 4, 1);
    ASSERT_TRUE(write_png(folder / "a.png", picture));
    const Picture read = read_back(folder / "a.png", channels == 3);
    EXPECT_EQ(read.width, 4U);
    EXPECT_EQ(read.pixels, picture.pixels);
  }
}

TEST(ImageGrid, PlanesBecomePixels) {
  const auto images = ramp(3 * 4);
  const Picture picture = picture_of(images, 3, 2, 0);
  EXPECT_EQ(picture.pixels,
            (std::vector<std::uint8_t>{images[0], images[4], images[8], images[1], images[5],
                                       images[9], images[2], images[6], images[10], images[3],
                                       images[7], images[11]}));
}

TEST(ImageGrid, LaysPicturesRowByRowWithAGap) {
  std::vector<Picture> pictures;
  for (const std::uint8_t grey : {10, 20, 30}) pictures.push_back({1, 1, 1, {grey}});
  const Picture grid = make_grid(pictures, 2, 1);
  EXPECT_EQ(grid.width, 5U);
  EXPECT_EQ(grid.height, 5U);
  EXPECT_EQ(grid.pixels[1 * 5 + 1], 10);
  EXPECT_EQ(grid.pixels[1 * 5 + 3], 20);
  EXPECT_EQ(grid.pixels[3 * 5 + 1], 30);
  EXPECT_EQ(grid.pixels[3 * 5 + 3], 255);
}

TEST(ImageGrid, TakesThePlaceOfNothingButAFile) {
  const TempFolder folder;
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const auto written = write_png(pipe, {1, 1, 1, {0}});
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, ErrorCode::kInvalid);
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
}

TEST(ImageGrid, AFolderThatIsNotThereIsAnError) {
  const auto written = write_png("/nowhere/at/all.png", {1, 1, 1, {0}});
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, ErrorCode::kIo);
}

}  // namespace
}  // namespace skerry::diffusion
