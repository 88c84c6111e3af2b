// SPDX-License-Identifier: Apache-2.0
// Latents from every kind of file, scaled and not, and what is refused.
#include "diffusion/formats/latents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/text.h"
#include "diffusion/formats/half.h"
#include "diffusion/formats/read_images.h"
#include "diffusion/testing/test_images.h"
#include "storage/safetensors.h"

namespace skerry::diffusion {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace testing;

constexpr std::uint64_t kChannels = 2, kSide = 4, kEach = kChannels * kSide * kSide;

// Value i of latent n, which a half holds exactly.
float value(std::uint64_t n, std::uint64_t i) {
  return 0.25F * static_cast<float>(i) - static_cast<float>(n);
}

std::vector<float> some(std::uint64_t first, std::uint64_t count) {
  std::vector<float> out;
  for (std::uint64_t n = first; n < first + count; ++n) {
    for (std::uint64_t i = 0; i < kEach; ++i) out.push_back(value(n, i));
  }
  return out;
}

std::string latents_npy(std::uint64_t first, std::uint64_t count) {
  return npy_file("<f4", {count, kChannels, kSide, kSide}, floats(some(first, count)));
}

std::string one_npy(std::uint64_t n) {
  return npy_file("<f4", {kChannels, kSide, kSide}, floats(some(n, 1)));
}

std::string as_halves(const std::vector<float>& values) {
  std::string out;
  for (const float v : values) {
    const std::uint16_t half = to_half(v);
    out.append(reinterpret_cast<const char*>(&half), sizeof half);
  }
  return out;
}

std::string int64s(const std::vector<std::int64_t>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(std::int64_t)};
}

Result<ImageSet> read(const TemporaryFolder& folder, const std::string& path,
                      const LatentOptions& options = {}, int size = 0) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Source> source, open_source(path, CaptionChoice::kAuto));
  return read_images(*source, folder.path(), size, options, CaptionChoice::kAuto, nullptr,
                     [](const Progress&) {});
}

std::string refusal(const TemporaryFolder& folder, const std::string& path,
                    const LatentOptions& options = {}, int size = 0) {
  const auto set = read(folder, path, options, size);
  return set.has_value() ? "accepted" : set.error().message;
}

// They are latents 0, 1, … of value(), scaled like this.
void expect_in_order(const Result<ImageSet>& set, std::uint64_t count, double scale = 1,
                     double shift = 0) {
  ASSERT_TRUE(set.has_value()) << set.error().message;
  ASSERT_EQ(set->pixels.count, count);
  EXPECT_TRUE(set->pixels.latents);
  EXPECT_EQ(set->pixels.channels, 2);
  EXPECT_EQ(set->pixels.size, 4);
  std::vector<float> found(kEach);
  for (std::uint64_t n = 0; n < count; ++n) {
    set->pixels.read(n, found);
    for (std::uint64_t i = 0; i < kEach; ++i)
      EXPECT_NEAR(found[i], (value(n, i) - shift) * scale, 1e-3 * std::abs(found[i]))
          << n << ' ' << i;
  }
}

TEST(Half, EveryOneIsTheSameAfterAFloat) {
  for (std::uint32_t half = 0; half < 0x10000; ++half) {
    const float as_float = from_half(static_cast<std::uint16_t>(half));
    if (std::isnan(as_float)) continue;
    ASSERT_EQ(to_half(as_float), half) << as_float;
  }
}

TEST(Half, FloatsBecomeTheNearest) {
  EXPECT_EQ(from_half(to_half(1 + 0x1p-11F)), 1) << "of two as near the even one";
  EXPECT_EQ(from_half(to_half(1 + 0x3p-11F)), 1 + 0x1p-9F);
  EXPECT_EQ(from_half(to_half(1 + 0x1.01p-11F)), 1 + 0x1p-10F);
  EXPECT_EQ(from_half(to_half(0x1.8p-24F)), 0x1p-23F);
  EXPECT_EQ(from_half(to_half(0x1p-25F)), 0);
  EXPECT_EQ(from_half(to_half(-65519)), -65504);
  EXPECT_EQ(from_half(to_half(65520)), INFINITY);
  EXPECT_TRUE(std::isnan(from_half(to_half(NAN))));
}

TEST(Latents, OfOneNumPyFileWithItsLabelsBeside) {
  const TemporaryFolder folder;
  const std::string path = folder.write("in/train-latents.npy", latents_npy(0, 3));
  EXPECT_THAT(read(folder, path)->labels, ElementsAre(-1, -1, -1));
  folder.write("in/train-labels.npy", npy_file("<i8", {3}, int64s({2, -1, 0})));
  for (const std::string& from : {path, folder.path("in")}) {
    const auto set = read(folder, from);
    expect_in_order(set, 3);
    EXPECT_THAT(set->labels, ElementsAre(2, -1, 0));
    EXPECT_THAT(set->classes, ElementsAre("0", "1", "2"));
  }
  folder.write("in/train-labels.npy", npy_file("|u1", {3}, std::string("\2\1\0", 3)));
  EXPECT_THAT(read(folder, path)->labels, ElementsAre(2, 1, 0));
  folder.write("in/train-latents.npy",
               npy_file("<f2", {3, kChannels, kSide, kSide}, as_halves(some(0, 3))));
  expect_in_order(read(folder, path), 3);
}

TEST(Latents, OfAFolderInTheOrderOfNamesWhereAFolderIsAClass) {
  const TemporaryFolder folder;
  folder.write("in/cat/0.npy", one_npy(0));
  folder.write("in/cat/1.npy", latents_npy(1, 2));
  folder.write("in/dog/0.npy", one_npy(3));
  const auto set = read(folder, folder.path("in"));
  expect_in_order(set, 4);
  EXPECT_THAT(set->classes, ElementsAre("cat", "dog"));
  EXPECT_THAT(set->labels, ElementsAre(0, 0, 0, 1));
}

TEST(Latents, OfSafetensors) {
  const TemporaryFolder folder;
  const std::string halves = as_halves(some(0, 2)), numbers = int64s({1, 0});
  const std::vector<storage::TensorView> tensors{
      {"latents", storage::DType::kF16, {2, kChannels, kSide, kSide}, halves},
      {"labels", storage::DType::kI64, {2}, numbers}};
  const std::string path = folder.path("x.safetensors");
  ASSERT_TRUE(storage::write_safetensors(path, tensors, {}).has_value());
  const auto set = read(folder, path);
  expect_in_order(set, 2);
  EXPECT_THAT(set->labels, ElementsAre(1, 0));
  const std::vector<storage::TensorView> unnamed{{"x", storage::DType::kI64, {2}, numbers}};
  ASSERT_TRUE(storage::write_safetensors(path, unnamed, {}).has_value());
  EXPECT_THAT(refusal(folder, path), HasSubstr("x.safetensors: expected a tensor `latents`"));
}

TEST(Latents, OfAWebDataset) {
  const TemporaryFolder folder;
  const std::string tar = tar_bytes({{"0.cls", "1"},
                                     {"0.latent.npy", one_npy(0)},
                                     {"1.npy", one_npy(1)},
                                     {"1.json", R"({"label": 0})"},
                                     {"2.txt", "no latent"},
                                     {"3.npy", one_npy(2)}});
  const auto set = read(folder, folder.write("a.tar", tar));
  expect_in_order(set, 3);
  EXPECT_THAT(set->labels, ElementsAre(1, 0, -1));
  EXPECT_EQ(set->skipped, 1U);
  EXPECT_THAT(set->skipped_examples[0].reason, HasSubstr(".npy among its fields: .txt"));
}

TEST(Latents, AnArrayBesideAnImageIsNone) {
  const TemporaryFolder folder;
  const std::string png = png_bytes(picture(8, 8, 3, 1));
  const auto set =
      read(folder,
           folder.write(
               "a.tar",
               tar_bytes({{"0.npy", "anything"}, {"0.png", png}, {"1.png", png}, {"1.npy", "x"}})));
  ASSERT_TRUE(set.has_value()) << set.error().message;
  EXPECT_EQ(set->pixels.count, 2U);
  EXPECT_FALSE(set->pixels.latents);
  EXPECT_FALSE(set->latents.has_value());
}

TEST(Latents, AreScaledUnlessTheyAreAlready) {
  const TemporaryFolder folder;
  const std::string path = folder.write("latents.npy", latents_npy(0, 2));
  const LatentScaling scaling{.scale = 0.18215, .shift = 0.5};
  const auto scaled = read(folder, path, {.scaling = scaling});
  expect_in_order(scaled, 2, 0.18215, 0.5);
  EXPECT_EQ(scaled->latents, scaling);
  const auto as_they_are = read(folder, path, {.scaling = scaling, .scaled = true});
  expect_in_order(as_they_are, 2);
  EXPECT_EQ(as_they_are->latents, scaling);
  EXPECT_EQ(read(folder, path)->latents, LatentScaling{});
  EXPECT_THAT(refusal(folder, path, {.scaling = LatentScaling{.scale = 0}}), HasSubstr("above 0"));
}

TEST(Latents, WhatIsNoneIsRefusedWithAReason) {
  const TemporaryFolder folder;
  const std::string numbers = floats(some(0, 1));
  const auto with_first = [&](float first) {
    std::vector<float> values = some(0, 1);
    values[0] = first;
    return npy_file("<f4", {1, kChannels, kSide, kSide}, floats(values));
  };
  std::string fortran = latents_npy(0, 1);
  fortran.replace(fortran.find("False"), 5, "True ");
  const std::pair<std::string, const char*> cases[] = {
      {with_first(NAN), "x.npy[0]: expected finite numbers, found nan"},
      {with_first(-INFINITY), "expected finite numbers, found -inf"},
      {with_first(1e6F), "expected numbers up to 65504"},
      {npy_file("<f4", {1, 1, 8, 4}, numbers), "found [1,1,8,4]"},
      {npy_file("<f4", {2, 16}, numbers), "expected latents of the shape [N,C,S,S]"},
      {npy_file("<f4", {8, 2, 2}, numbers), "found [8,2,2]"},
      {npy_file("<f4", {0, 2, 4, 4}, ""), "found [0,2,4,4]"},
      {npy_file(">f4", {1, 2, 4, 4}, numbers), "found '>f4': save a.astype('<f4')"},
      {npy_file("|O", {1, 2, 4, 4}, numbers), "found '|O'"},
      {npy_file("<i4", {1, 2, 4, 4}, numbers), "expected latents as floats"},
      {fortran, "Fortran"},
      {latents_npy(0, 1) + "x", "expected 128 bytes of numbers, found 129"},
      {npy_file("<f4", {1ULL << 62, 2, 4, 4}, numbers), "beyond all memory"},
      {"no array", "not a NumPy file"}};
  for (const auto& [bytes, words] : cases)
    EXPECT_THAT(refusal(folder, folder.write("x.npy", bytes)), HasSubstr(words));
  EXPECT_THAT(refusal(folder, folder.write("x.npy", latents_npy(0, 1)), {}, 8),
              HasSubstr("leave --image-size out"));
}

TEST(Latents, LabelsMustFit) {
  const TemporaryFolder folder;
  const std::string path = folder.write("latents.npy", latents_npy(0, 2));
  const std::pair<std::string, const char*> cases[] = {
      {npy_file("<i8", {3}, int64s({0, 1, 2})),
       "labels.npy: expected labels as whole numbers, one for each of 2"},
      {npy_file("<i8", {2}, int64s({0, -2})), "found -2 at 1"},
      {npy_file("<u8", {2}, int64s({0, -1})), "or −1 for none, found"},
      {npy_file("<f4", {2}, floats({0, 1})), "found floats of the shape [2]"}};
  for (const auto& [bytes, words] : cases) {
    folder.write("labels.npy", bytes);
    EXPECT_THAT(refusal(folder, path), HasSubstr(words));
  }
}

TEST(Latents, AreAllOfOneShapeAndNotMixedWithImages) {
  const TemporaryFolder folder;
  folder.write("in/0.npy", one_npy(0));
  folder.write("in/1.npy", npy_file("<f4", {1, 1, 4, 4}, floats(std::vector<float>(16))));
  EXPECT_THAT(refusal(folder, folder.path("in")),
              HasSubstr("1.npy[0]: expected a latent of [2,4,4], as before it, found [1,4,4]"));
  const std::string png = png_bytes(picture(8, 8, 3, 1));
  EXPECT_THAT(
      refusal(folder, folder.write("a.tar", tar_bytes({{"0.npy", one_npy(0)}, {"1.png", png}}))),
      HasSubstr("1.png: expected latents, as before it, found an image"));
  EXPECT_THAT(
      refusal(folder,
              folder.write("a.tar", tar_bytes({{"0.a.npy", one_npy(0)}, {"0.b.npy", one_npy(0)}}))),
      HasSubstr("expected one .npy in a sample, found 0.b.npy too"));
  EXPECT_THAT(refusal(folder, folder.write("a.tar", tar_bytes({{"0.npy", latents_npy(0, 2)}}))),
              HasSubstr("0.npy: expected one latent [C,S,S] in a sample, found 2"));
  EXPECT_THAT(refusal(folder, folder.write("a.tar", tar_bytes({{"0.png", png}})),
                      {.scaling = LatentScaling{}}),
              HasSubstr("0.png: expected latents"));
  EXPECT_THAT(refusal(folder, folder.path("in/0.npy"), {.scaled = true}),
              HasSubstr("needs --latent-scale"));
}

// As where a sample has an embedding beside its image, and the image was lost.
TEST(Latents, OfASetOfImagesAreNone) {
  const TemporaryFolder folder;
  const std::string png = png_bytes(picture(8, 8, 3, 1));
  const auto set =
      read(folder,
           folder.write("a.tar",
                        tar_bytes({{"0.png", png}, {"1.npy", "no array"}, {"2.npy", one_npy(0)}})));
  ASSERT_TRUE(set.has_value()) << set.error().message;
  EXPECT_EQ(set->pixels.count, 1U);
  EXPECT_FALSE(set->latents);
  ASSERT_EQ(set->skipped, 2U);
  EXPECT_THAT(set->skipped_examples[0].reason, HasSubstr("among its fields: .npy"));
}

}  // namespace
}  // namespace skerry::diffusion
