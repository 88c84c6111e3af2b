// Every input format, whole, odd and broken.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "diffusion/data/read_images.h"
#include "diffusion/data/source.h"
#include "diffusion/data/test_images.h"

namespace skerry::diffusion {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace testing;

Result<ImageSet> read(const TemporaryFolder& folder, const std::string& path, int size = 0) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Source> source, open_source(path));
  return read_images(*source, folder.path(), size, [](const Progress&) {});
}

std::vector<std::uint8_t> plane(const Image& image, std::size_t channel) {
  std::vector<std::uint8_t> out;
  for (std::size_t i = channel; i < image.pixels.size(); i += static_cast<std::size_t>(image.channels)) {
    out.push_back(image.pixels[i]);
  }
  return out;
}

TEST(Codec, PngComesBackBitForBit) {
  const Image image = picture(13, 7, 3, 1);
  const auto decoded = decode_image(png_bytes(image));
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(decoded->pixels, image.pixels);
  EXPECT_EQ(decoded->width, 13);
  EXPECT_EQ(decoded->height, 7);
}

TEST(Codec, JpegComesBackCloseAndGreyAsRgb) {
  for (const int channels : {1, 3}) {
    const Image image = picture(24, 16, channels, 2);
    const auto decoded = decode_image(jpeg_bytes(image));
    ASSERT_TRUE(decoded.has_value()) << decoded.error().message;
    ASSERT_EQ(decoded->channels, 3);
    EXPECT_EQ(is_grey(*decoded), channels == 1);
    for (std::size_t i = 0; i < decoded->pixels.size(); ++i) {
      EXPECT_NEAR(decoded->pixels[i], image.pixels[channels == 1 ? i / 3 : i],
                  24);  // colour is stored at half the resolution
    }
  }
}

TEST(Codec, TruncatedAndForeignBytesAreCorrupt) {
  const std::string png = png_bytes(picture(32, 32, 3, 1)), jpeg = jpeg_bytes(picture(32, 32, 3, 1));
  for (const std::string& bytes :
       {png.substr(0, png.size() / 2), png.substr(0, 20), jpeg.substr(0, jpeg.size() / 2), jpeg.substr(0, 12),
        std::string(), std::string("GIF89a…")}) {
    const auto decoded = decode_image(bytes);
    ASSERT_FALSE(decoded.has_value());
    EXPECT_EQ(decoded.error().code, ErrorCode::kCorrupt);
    EXPECT_FALSE(decoded.error().message.empty());
  }
}

TEST(Resize, SameSizeIsACopyAndTheCentreIsKept) {
  const Image image = picture(16, 16, 3, 3);
  EXPECT_EQ(centre_square(image, 16).pixels, image.pixels);
  Image wide{30, 10, 1, std::vector<std::uint8_t>(300, 0)};  // white in the middle third only
  for (std::size_t y = 0; y < 10; ++y) {
    for (std::size_t x = 10; x < 20; ++x) wide.pixels[y * 30 + x] = 255;
  }
  EXPECT_EQ(centre_square(wide, 10).pixels, std::vector<std::uint8_t>(100, 255));
}

TEST(Resize, ShrinkingAveragesAndKeepsAConstant) {
  Image board{64, 64, 1, {}};
  for (int i = 0; i < 64 * 64; ++i) board.pixels.push_back((i + i / 64) % 2 == 0 ? 0 : 255);
  for (const std::uint8_t pixel : centre_square(board, 8).pixels) EXPECT_NEAR(pixel, 127, 3);
  const Image flat{37, 41, 3, std::vector<std::uint8_t>(37 * 41 * 3, 77)};
  EXPECT_EQ(centre_square(flat, 19).pixels, std::vector<std::uint8_t>(19 * 19 * 3, 77));
  EXPECT_EQ(centre_square(flat, 90).pixels, std::vector<std::uint8_t>(90 * 90 * 3, 77));
}

TEST(Folder, ClassesAreFoldersAndBrokenImagesAreNamed) {
  const TemporaryFolder folder;
  folder.write("in/shoe/b.png", png_bytes(picture(16, 16, 3, 1)));
  folder.write("in/bag/deep/a.JPG", jpeg_bytes(picture(20, 16, 3, 2)));
  folder.write("in/bag/broken.png", png_bytes(picture(16, 16, 3, 1)).substr(0, 50));
  folder.write("in/bag/c.webp", "RIFF");
  folder.write("in/bag/notes.txt", "no image");
  folder.write("in/.hidden/x.png", png_bytes(picture(16, 16, 3, 1)));
  const auto set = read(folder, folder.path("in"), 16);
  ASSERT_TRUE(set.has_value()) << set.error().message;
  EXPECT_THAT(set->classes, ElementsAre("bag", "shoe"));
  EXPECT_THAT(set->labels, ElementsAre(0, 1));
  EXPECT_EQ(set->pixels.count, 2U);
  EXPECT_EQ(set->pixels.channels, 3);
  EXPECT_EQ(set->skipped, 2U);
  EXPECT_EQ(set->skipped_examples[0].path, "bag/broken.png");
  EXPECT_THAT(set->skipped_examples[0].reason, HasSubstr("PNG"));
  EXPECT_THAT(set->skipped_examples[1].reason, HasSubstr("only JPEG and PNG"));
  const Image shoe = picture(16, 16, 3, 1);
  const auto stored = set->pixels.image(1);
  for (std::size_t c = 0; c < 3; ++c) {
    EXPECT_THAT(stored.subspan(c * 256, 256), ::testing::ElementsAreArray(plane(shoe, c)));
  }
}

TEST(Folder, FlatIsUnlabelledAndGreyStaysGrey) {
  const TemporaryFolder folder;
  const Image grey = picture(12, 12, 1, 4);
  folder.write("in/1.png", png_bytes(grey));
  folder.write("in/2.png", png_bytes(picture(12, 12, 1, 5)));
  const auto set = read(folder, folder.path("in"));
  ASSERT_TRUE(set.has_value());
  EXPECT_EQ(set->pixels.channels, 1);
  EXPECT_EQ(set->pixels.size, 12);  // a small square keeps its size
  EXPECT_TRUE(set->classes.empty());
  EXPECT_THAT(set->labels, ElementsAre(-1, -1));
  EXPECT_THAT(grey.pixels, ::testing::ElementsAreArray(set->pixels.image(0)));
}

TEST(Folder, OneColouredImageMakesAllRgb) {
  const TemporaryFolder folder;
  const Image grey = picture(12, 12, 1, 4);
  folder.write("in/1.png", png_bytes(grey));
  folder.write("in/2.png", png_bytes(picture(12, 12, 3, 5)));
  const auto set = read(folder, folder.path("in"));
  ASSERT_TRUE(set.has_value());
  EXPECT_EQ(set->pixels.channels, 3);
  for (std::size_t c = 0; c < 3; ++c) {
    EXPECT_THAT(grey.pixels, ::testing::ElementsAreArray(set->pixels.image(0).subspan(c * 144, 144)));
  }
}

TEST(Folder, EmptyUnknownAndMissingSayWhatWasFound) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder.path("empty"));
  folder.write("other/a.csv", "1");
  folder.write("other/b.csv", "1");
  folder.write("bad/a.png", "x");
  const std::string file = folder.write("file.bin", "hello");
  EXPECT_THAT(read(folder, folder.path("empty")).error().message, HasSubstr("is empty; accepted are"));
  EXPECT_THAT(read(folder, folder.path("other")).error().message, HasSubstr("only 2 × .csv; accepted are"));
  EXPECT_THAT(read(folder, file).error().message, HasSubstr("format is not known; accepted are"));
  EXPECT_EQ(read(folder, folder.path("nowhere")).error().code, ErrorCode::kNotFound);
  EXPECT_THAT(read(folder, folder.path("bad")).error().message, HasSubstr("a.png"));
}

TEST(Idx, PlainAndGzipWithLabels) {
  const TemporaryFolder folder;
  const std::vector<Image> images{picture(9, 9, 1, 1), picture(9, 9, 1, 2), picture(9, 9, 1, 3)};
  folder.write("gz/train-images-idx3-ubyte.gz", gzipped(idx_images(images)));
  folder.write("gz/train-labels-idx1-ubyte.gz", gzipped(idx_labels({2, 0, 2})));
  folder.write("gz/t10k-images-idx3-ubyte.gz", gzipped(idx_images({images[0]})));
  const std::string plain = folder.write("plain/train-images-idx3-ubyte", idx_images(images));
  folder.write("plain/train-labels-idx1-ubyte", idx_labels({2, 0, 2}));
  for (const std::string& path : {folder.path("gz"), plain}) {
    const auto set = read(folder, path);
    ASSERT_TRUE(set.has_value()) << set.error().message;
    EXPECT_THAT(set->classes, ElementsAre("0", "1", "2"));
    EXPECT_THAT(set->labels, ElementsAre(2, 0, 2));
    EXPECT_EQ(set->pixels.channels, 1);
    EXPECT_EQ(set->pixels.size, 9);
    EXPECT_THAT(images[2].pixels, ::testing::ElementsAreArray(set->pixels.image(2)));
  }
}

TEST(Idx, WithoutLabelsItIsUnlabelled) {
  const TemporaryFolder folder;
  const auto set = read(folder, folder.write("some.bin", idx_images({picture(8, 8, 1, 1)})));
  ASSERT_TRUE(set.has_value()) << set.error().message;
  EXPECT_THAT(set->labels, ElementsAre(-1));
}

TEST(Idx, BrokenFilesAreErrors) {
  const TemporaryFolder folder;
  const std::vector<Image> images{picture(9, 9, 1, 1), picture(9, 9, 1, 2)};
  const std::string whole = idx_images(images), zipped = gzipped(whole);
  std::string wrong_sum = zipped;
  wrong_sum[wrong_sum.size() - 6] ^= 0x55;  // in the checksum
  const std::string cases[] = {whole.substr(0, whole.size() - 1), whole.substr(0, 10), whole + "x",
                               zipped.substr(0, zipped.size() / 2), wrong_sum};
  for (const std::string& bytes : cases) {
    const auto set = read(folder, folder.write("train-images-idx3-ubyte", bytes));
    ASSERT_FALSE(set.has_value());
    EXPECT_EQ(set.error().code, ErrorCode::kCorrupt) << set.error().message;
    EXPECT_THAT(set.error().message, HasSubstr("train-images-idx3-ubyte"));
  }
  folder.write("train-images-idx3-ubyte", whole);
  folder.write("train-labels-idx1-ubyte", idx_labels({1, 2, 3}));
  EXPECT_THAT(read(folder, folder.path("train-images-idx3-ubyte")).error().message,
              HasSubstr("holds 2 images, but"));
}

TEST(Tar, LabelsComeFromClsThenJsonThenFolder) {
  const TemporaryFolder folder;
  const std::string png = png_bytes(picture(8, 8, 3, 1));
  folder.write("in/a-000.tar", tar_bytes({{"d/", ""},
                                          {"0.cls", "3\n"},
                                          {"0.png", png},
                                          {"1.jpg", jpeg_bytes(picture(8, 8, 3, 2))},
                                          {"1.json", R"({"label": 1, "x": [1]})"}}));
  folder.write("in/a-001.tar",
               tar_bytes({{"./2.png", png}, {"./2.json", R"({"label": "0"})"}, {"3.png", png}}));
  const auto set = read(folder, folder.path("in"));
  ASSERT_TRUE(set.has_value()) << set.error().message;
  EXPECT_THAT(set->classes, ElementsAre("0", "1", "2", "3"));
  EXPECT_THAT(set->labels, ElementsAre(3, 1, 0, -1));
  const auto tree =
      read(folder, folder.write("tree.tar", tar_bytes({{"cat/x.1.png", png}, {"dog/x.1.png", png}})));
  ASSERT_TRUE(tree.has_value());
  EXPECT_THAT(tree->classes, ElementsAre("cat", "dog"));
}

TEST(Tar, OnlyConsecutiveMembersBelongTogether) {
  const TemporaryFolder folder;
  const std::string png = png_bytes(picture(8, 8, 3, 1));
  const auto set =
      read(folder, folder.write("a.tar", tar_bytes({{"0.cls", "1"},
                                                    {"0.png", png},
                                                    {"0.extra.jpeg", "second image of the sample"},
                                                    {"1.txt", "a caption"},
                                                    {"2.png", png.substr(0, 40)},
                                                    {"0.png", png},
                                                    {".hidden.png", png},
                                                    {"nofield", "x"}})));
  ASSERT_TRUE(set.has_value()) << set.error().message;
  EXPECT_THAT(set->labels, ElementsAre(1, -1));  // the later 0.png is a sample of its own, without a label
  EXPECT_THAT(set->classes, ElementsAre("0", "1")) << "1 is a number: 0 comes before it";
}

TEST(Tar, TruncatedAndForeignArchivesAreErrors) {
  const TemporaryFolder folder;
  const std::string tar = tar_bytes({{"0.png", png_bytes(picture(64, 64, 3, 1))}});
  for (const std::string& bytes : {tar.substr(0, 700), std::string("not a tar at all, not a bit of one")}) {
    const auto set = read(folder, folder.write("a.tar", bytes));
    ASSERT_FALSE(set.has_value());
    EXPECT_EQ(set.error().code, ErrorCode::kCorrupt) << set.error().message;
    EXPECT_THAT(set.error().message, HasSubstr("a.tar"));
  }
}

TEST(Classes, NumbersKeepTheirValueWhereTheyFillTheirRange) {
  EXPECT_THAT(number_classes({"10", "2", std::nullopt}).names, ElementsAre("2", "10"));
  EXPECT_THAT(number_classes({"10", "2", std::nullopt}).labels, ElementsAre(1, 0, -1));
  EXPECT_THAT(number_classes({"2", "0"}).labels, ElementsAre(2, 0));
  EXPECT_THAT(number_classes({"b", "07", "a"}).names, ElementsAre("07", "a", "b"));
}

}  // namespace
}  // namespace skerry::diffusion
