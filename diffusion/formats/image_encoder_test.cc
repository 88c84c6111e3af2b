// SPDX-License-Identifier: Apache-2.0
// Images that are encoded while they are read, and go on where a killed
// ingestion was.
#include "diffusion/formats/image_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>
#include <optional>

#include "diffusion/formats/half.h"
#include "diffusion/formats/read_images.h"
#include "diffusion/testing/test_images.h"

namespace skerry::diffusion {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace testing;

// The mean of an image, at four places of one channel.
class Mean final : public ImageEncoder {
 public:
  explicit Mean(std::vector<std::size_t>& batches) : batches_(batches) {}
  LatentScaling scaling() const override { return {.scale = 0.5, .shift = 1}; }
  Result<std::vector<Latent>> encode(const std::vector<Image>& images) override {
    batches_.push_back(images.size());
    std::vector<Latent> latents;
    for (const Image& image : images)
      latents.push_back({1, 4, std::vector<float>(16, mean(image))});
    return latents;
  }
  static float mean(const Image& image) {
    const float sum = std::accumulate(image.pixels.begin(), image.pixels.end(), 0.F);
    return sum / static_cast<float>(image.pixels.size());
  }

 private:
  std::vector<std::size_t>& batches_;  // that it had to encode
};

std::vector<Image> batch(std::uint32_t first, std::size_t count) {
  std::vector<Image> images;
  for (std::uint32_t i = 0; i < count; ++i) images.push_back(picture(8, 8, 3, first + i));
  return images;
}

// Encodes three batches. RETURNS: all numbers of all latents.
std::vector<float> encode_all(ImageEncoder& encoder, std::uint32_t second = 10) {
  std::vector<float> all;
  for (const std::vector<Image>& images : {batch(0, 3), batch(second, 3), batch(20, 2)}) {
    const auto latents = encoder.encode(images);
    EXPECT_TRUE(latents) << latents.error().message;
    for (const Latent& latent : *latents)
      all.insert(all.end(), latent.values.begin(), latent.values.end());
  }
  return all;
}

class Resuming : public ::testing::Test {
 protected:
  std::unique_ptr<ResumingEncoder> open(const char* key = "key") {
    encoded_.clear();
    kept_.emplace(KeptBatches::open(path_).value());
    return std::make_unique<ResumingEncoder>(std::make_unique<Mean>(encoded_), blake2b(key),
                                             *kept_);
  }
  TemporaryFolder folder_;
  const std::string path_ = folder_.path("encoded");
  std::vector<std::size_t> encoded_;  // batches, since open()
  std::optional<KeptBatches> kept_;
};

TEST_F(Resuming, ASecondAttemptEncodesNothingAgain) {
  const std::vector<float> first = encode_all(*open());
  const auto again = open();
  EXPECT_EQ(encode_all(*again), first);
  EXPECT_THAT(encoded_, ElementsAre());
  EXPECT_EQ(again->resumed(), 8U);
}

// A file that ends anywhere is what a killed process leaves.
TEST_F(Resuming, ATornFileIsGoneOnFromAtEveryByte) {
  const std::vector<float> whole = encode_all(*open());
  const std::string bytes = read_file(path_);
  for (std::size_t end = 0; end <= bytes.size(); end += 7) {
    folder_.write("encoded", bytes.substr(0, end));
    ASSERT_EQ(encode_all(*open()), whole) << end;
    ASSERT_EQ(read_file(path_), bytes) << end;
  }
}

TEST_F(Resuming, DamagedLatentsAreEncodedAgain) {
  const std::vector<float> whole = encode_all(*open());
  const std::string bytes = read_file(path_);
  for (std::size_t at = 0; at < bytes.size(); at += 5) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    folder_.write("encoded", damaged);
    ASSERT_EQ(encode_all(*open()), whole) << at;
  }
}

TEST_F(Resuming, OtherImagesOrAnotherEncoderAreEncoded) {
  encode_all(*open());
  const std::vector<float> other = encode_all(*open(), 11);
  EXPECT_NE(other, encode_all(*open()));
  encode_all(*open());
  encode_all(*open(), 11);
  EXPECT_THAT(encoded_, ElementsAre(3, 2)) << "from the first that differs on";
  encode_all(*open("other"));
  EXPECT_THAT(encoded_, ElementsAre(3, 3, 2));
}

TEST(Encoding, ImagesBecomeScaledLatentsWhileTheyAreRead) {
  const TemporaryFolder folder;
  constexpr std::uint32_t kImages = 2 * kEncodeBatch + 3;
  write_image_folder(folder, "in", kImages, 3, 8, 3);
  folder.write("in/kind-0/broken.png", "no image");
  const auto source = open_source(folder.path("in"), CaptionChoice::kOff);
  ASSERT_TRUE(source);
  std::vector<std::size_t> batches;
  Mean mean(batches);
  const auto set = read_images(**source, folder.path(), 8, {}, CaptionChoice::kOff, &mean,
                               [](const Progress&) {});
  ASSERT_TRUE(set) << set.error().message;
  EXPECT_THAT(batches, ElementsAre(kEncodeBatch, kEncodeBatch, 3));
  EXPECT_EQ(set->latents, mean.scaling());
  EXPECT_EQ(set->skipped, 1U);
  EXPECT_EQ(set->pixels.count, kImages);
  EXPECT_EQ(set->labels.size(), kImages);
  EXPECT_TRUE(set->pixels.latents);
  EXPECT_EQ(set->pixels.size, 4);
  const auto plain = open_source(folder.path("in"), CaptionChoice::kOff);
  std::uint64_t at = 0;
  while (const auto sample = (*plain)->next().value()) {
    if (!sample->image) continue;
    std::vector<float> found(16);
    set->pixels.read(at++, found);
    const float expected = (Mean::mean(centre_square(*sample->image, 8)) - 1) * 0.5F;
    EXPECT_EQ(found, std::vector<float>(16, from_half(to_half(expected)))) << sample->path;
  }
  EXPECT_EQ(at, kImages);
}

TEST(Encoding, LatentsAreNotEncodedAgain) {
  const TemporaryFolder folder;
  folder.write("in.npy", npy_file("<f4", {1, 1, 4, 4}, floats(std::vector<float>(16, 1))));
  const auto source = open_source(folder.path("in.npy"), CaptionChoice::kOff);
  ASSERT_TRUE(source);
  std::vector<std::size_t> batches;
  Mean mean(batches);
  const auto set = read_images(**source, folder.path(), 0, {}, CaptionChoice::kOff, &mean,
                               [](const Progress&) {});
  ASSERT_FALSE(set);
  EXPECT_THAT(set.error().message, HasSubstr("expected images, which --vae encodes"));
}

}  // namespace
}  // namespace skerry::diffusion
