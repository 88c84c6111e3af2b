// SPDX-License-Identifier: Apache-2.0
// Every input format, whole, odd and broken.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "diffusion/formats/npy.h"
#include "diffusion/formats/read_images.h"
#include "diffusion/formats/source.h"
#include "diffusion/testing/test_images.h"

namespace skerry::diffusion {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace testing;

Result<ImageSet> read(const TemporaryFolder& folder, const std::string& path, int size = 0,
                      const LatentOptions& latents = {}) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Source> source, open_source(path, CaptionChoice::kAuto));
  return read_images(*source, folder.path(), size, latents, CaptionChoice::kAuto, nullptr,
                     [](const Progress&) {});
}

std::vector<std::uint8_t> plane(const Image& image, std::size_t channel) {
  std::vector<std::uint8_t> out;
  for (std::size_t i = channel; i < image.pixels.size();
       i += static_cast<std::size_t>(image.channels)) {
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

TEST(Codec, WebpComesBackBitForBitAndTransparencyIsLaidOnWhite) {
  const Image image = picture(13, 7, 3, 1);
  const auto decoded = decode_image(webp_bytes(image));
  ASSERT_TRUE(decoded.has_value()) << decoded.error().message;
  EXPECT_EQ(decoded->pixels, image.pixels);
  EXPECT_EQ(decoded->width, 13);
  EXPECT_EQ(decoded->height, 7);
  const Image veiled{2, 1, 4, {10, 20, 30, 255, 200, 100, 0, 51}};  // whole, and a fifth of it
  const auto shown = decode_image(webp_bytes(veiled));
  ASSERT_TRUE(shown.has_value()) << shown.error().message;
  EXPECT_THAT(shown->pixels, ElementsAre(10, 20, 30, 244, 224, 204));
  EXPECT_FALSE(decode_image(webp_bytes(image), 90).has_value()) << "13 x 7 pixels are more";
}

TEST(Codec, TruncatedAndForeignBytesAreCorrupt) {
  const std::string png = png_bytes(picture(32, 32, 3, 1)),
                    jpeg = jpeg_bytes(picture(32, 32, 3, 1)),
                    webp = webp_bytes(picture(32, 32, 3, 1));
  for (const std::string& bytes :
       {png.substr(0, png.size() / 2), png.substr(0, 20), jpeg.substr(0, jpeg.size() / 2),
        jpeg.substr(0, 12), webp.substr(0, webp.size() / 2), webp.substr(0, 16), webp.substr(0, 10),
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
  folder.write("in/bag/c.gif", "GIF89a");
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
  EXPECT_THAT(set->skipped_examples[1].reason, HasSubstr("only JPEG, PNG and WebP"));
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
    EXPECT_THAT(grey.pixels,
                ::testing::ElementsAreArray(set->pixels.image(0).subspan(c * 144, 144)));
  }
}

TEST(Folder, EmptyUnknownAndMissingSayWhatWasFound) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder.path("empty"));
  folder.write("other/a.csv", "1");
  folder.write("other/b.csv", "1");
  folder.write("bad/a.png", "x");
  const std::string file = folder.write("file.bin", "hello");
  EXPECT_THAT(read(folder, folder.path("empty")).error().message,
              HasSubstr("is empty; accepted are"));
  EXPECT_THAT(read(folder, folder.path("other")).error().message,
              HasSubstr("only 2 × .csv; accepted are"));
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

TEST(Cifar, TenIsReadFromItsFolderWithoutTheTestHalf) {
  const TemporaryFolder folder;
  const Image first = picture(32, 32, 3, 1), second = picture(32, 32, 3, 2);
  folder.write("in/data_batch_1.bin", cifar_record({3}, first) + cifar_record({0}, second));
  folder.write("in/data_batch_2.bin", cifar_record({9}, second));
  folder.write("in/test_batch.bin", cifar_record({1}, first));
  const auto set = read(folder, folder.path("in"));
  ASSERT_TRUE(set.has_value()) << set.error().message;
  EXPECT_THAT(set->classes, ElementsAre("0", "3", "9"));
  EXPECT_THAT(set->labels, ElementsAre(1, 0, 2));
  EXPECT_EQ(set->pixels.channels, 3);
  EXPECT_EQ(set->pixels.size, 32);
  for (std::size_t c = 0; c < 3; ++c) {
    EXPECT_THAT(plane(second, c),
                ::testing::ElementsAreArray(set->pixels.image(2).subspan(c * 1024, 1024)));
  }
  folder.write("in/batches.meta.txt",
               "air\nauto\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n\n");
  const auto named = read(folder, folder.path("in/data_batch_1.bin"));
  ASSERT_TRUE(named.has_value()) << named.error().message;
  EXPECT_THAT(named->classes, ElementsAre("air", "cat"));
  EXPECT_THAT(named->labels, ElementsAre(1, 0));
}

TEST(Cifar, OfAHundredTheFineLabelCounts) {
  const TemporaryFolder folder;
  const std::string record = cifar_record({19, 99}, picture(32, 32, 3, 1));
  folder.write("in/train.bin", record);
  folder.write("in/test.bin", record + record);
  const auto set = read(folder, folder.path("in"));
  ASSERT_TRUE(set.has_value()) << set.error().message;
  EXPECT_THAT(set->classes, ElementsAre("99"));
  EXPECT_EQ(set->pixels.count, 1U);
}

TEST(Cifar, BrokenFilesAreErrors) {
  const TemporaryFolder folder;
  const std::string record = cifar_record({3}, picture(32, 32, 3, 1));
  const std::string path = folder.write("data_batch_1.bin", record + record.substr(1));
  EXPECT_THAT(read(folder, path).error().message,
              HasSubstr("whole images of 3073 bytes; found 6145 bytes"));
  folder.write("data_batch_1.bin", record + cifar_record({10}, picture(32, 32, 3, 1)));
  EXPECT_THAT(read(folder, path).error().message,
              HasSubstr("[1]: label 10, but CIFAR-10 has 10 classes"));
  EXPECT_EQ(read(folder, path).error().code, ErrorCode::kCorrupt);
  folder.write("data_batch_1.bin", record);
  folder.write("train.bin", cifar_record({1, 3}, picture(32, 32, 3, 1)));
  EXPECT_THAT(read(folder, folder.path()).error().message,
              HasSubstr("of CIFAR-10 and of CIFAR-100"));
}

TEST(Npy, RowsComeBackAtLengthOne) {
  const std::string bytes = npy_bytes(3, 2, {3, 4, 0, 0, -2, 0});
  const auto matrix = parse_npy(bytes);
  ASSERT_TRUE(matrix.has_value()) << matrix.error().message;
  EXPECT_EQ(matrix->rows, 3U);
  EXPECT_EQ(matrix->columns, 2U);
  const std::vector<std::uint32_t> order{2, 0, 1};
  EXPECT_THAT(unit_rows(*matrix, order).value(), ElementsAre(-1, 0, 0.6F, 0.8F, 0, 0));
}

// What numpy.save writes of np.array([[1, -2, 65504], [2**-24, 0, .5]],
// np.float16).
TEST(Npy, HalvesAreReadExactly) {
  std::string bytes = npy_bytes(2, 3, {});
  bytes.replace(bytes.find("<f4"), 3, "<f2");
  for (const int half : {0x3c00, 0xc000, 0x7bff, 0x0001, 0x0000, 0x3800}) {
    bytes += static_cast<char>(half & 0xff);
    bytes += static_cast<char>(half >> 8);
  }
  const auto matrix = parse_npy(bytes);
  ASSERT_TRUE(matrix.has_value()) << matrix.error().message;
  const std::vector<std::uint32_t> both{0, 1};
  const auto rows = unit_rows(*matrix, both).value();
  EXPECT_FLOAT_EQ(rows[1] / rows[0], -2);
  EXPECT_FLOAT_EQ(rows[2] / rows[0], 65504);
  EXPECT_FLOAT_EQ(rows[3], 0x1p-23F);
  EXPECT_FLOAT_EQ(rows[5], 1);
}

TEST(Npy, WhatIsNoMatrixOfNumbersIsRefused) {
  const std::string whole = npy_bytes(2, 2, {1, 2, 3, 4});
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string bytes = whole;
    return bytes.replace(bytes.find(from), from.size(), to);
  };
  const std::pair<std::string, const char*> cases[] = {
      {"", "first bytes"},
      {"\x93NUMPY", "truncated"},
      {whole.substr(0, 40), "truncated"},
      {whole.substr(0, whole.size() - 1), "expected 16 bytes of numbers, found 15"},
      {whole + "x", "expected 16 bytes of numbers, found 17"},
      {with("(2, 2)", "(2, 3)"), "expected 24 bytes"},
      {with("(2, 2)", "(4,)  "), "1 dimensions"},
      {with("(2, 2)", "(0, 2)"), "0 rows of 2"},
      {with("(2, 2)", "(9, 99999999999999999999)"), "not what NumPy writes"},
      {with("'shape': (2, 2)", "'descr': '<f4' "), "not what NumPy writes"},
      {with("<f4", "<i4"), "found '<i4'"},
      {with("<f4", "|u1"), "found '|u1'"},
      {with("False", "True "), "Fortran"},
      {with("}", " "), "not what NumPy writes"},
      {with("NUMPY\x01", "NUMPY\x04"), "format 4"}};
  for (const auto& [bytes, words] : cases) {
    const auto parsed = parse_npy(bytes);
    ASSERT_FALSE(parsed.has_value()) << words;
    EXPECT_THAT(parsed.error().message, HasSubstr(words));
  }
  const std::string infinite = npy_bytes(2, 1, {1, INFINITY});
  const std::vector<std::uint32_t> rows{0, 1};
  EXPECT_THAT(unit_rows(*parse_npy(infinite), rows).error().message, HasSubstr("row 1"));
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
  const auto tree = read(
      folder, folder.write("tree.tar", tar_bytes({{"cat/x.1.png", png}, {"dog/x.1.png", png}})));
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
  EXPECT_THAT(set->labels,
              ElementsAre(1, -1));  // the later 0.png is a sample of its own, without a label
  EXPECT_THAT(set->classes, ElementsAre("0", "1")) << "1 is a number: 0 comes before it";
}

TEST(Tar, TruncatedAndForeignArchivesAreErrors) {
  const TemporaryFolder folder;
  const std::string tar = tar_bytes({{"0.png", png_bytes(picture(64, 64, 3, 1))}});
  for (const std::string& bytes :
       {tar.substr(0, 700), std::string("not a tar at all, not a bit of one")}) {
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

TEST(Folder, IsReadOnceThoughALinkInItLeadsBack) {
  const TemporaryFolder folder;
  folder.write("in/a/1.png", png_bytes(picture(8, 8, 3, 1)));
  folder.write("in/b/2.png", png_bytes(picture(8, 8, 3, 2)));
  folder.write("beside/3.png", png_bytes(picture(8, 8, 3, 3)));
  std::filesystem::create_directory_symlink("..", folder.path("in/a/up"));
  std::filesystem::create_directory_symlink(".", folder.path("in/b/self"));
  std::filesystem::create_directory_symlink("../beside", folder.path("in/c"));
  const auto set = read(folder, folder.path("in"));
  ASSERT_TRUE(set) << set.error().message;
  EXPECT_EQ(set->pixels.count, 3U) << "a link elsewhere is followed";
  EXPECT_THAT(set->classes, ElementsAre("a", "b", "c"));
}

}  // namespace
}  // namespace skerry::diffusion
