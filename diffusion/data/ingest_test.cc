// SPDX-License-Identifier: Apache-2.0
// Ingestion from end to end, on tiny images: what the folder holds, that it is
// the same every time, and bad input.
#include "diffusion/data/ingest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "base/hash.h"
#include "base/text.h"
#include "diffusion/data/held_back.h"
#include "diffusion/formats/half.h"
#include "diffusion/router/measure.h"
#include "diffusion/testing/test_images.h"
#include "storage/folder_lock.h"
#include "storage/safetensors.h"

namespace skerry::diffusion {
namespace {

using ::testing::HasSubstr;
using namespace testing;

const ProgressFn kQuiet = [](const Progress&) {};

IngestOptions options(const TemporaryFolder& folder, std::uint32_t partitions,
                      const std::string& out = "out") {
  return {.input = folder.path("in"), .output = folder.path(out), .partitions = partitions};
}

std::map<std::string, std::string> contents(const std::string& folder) {
  std::map<std::string, std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    out[entry.path().filename().string()] = read_file(entry.path().string());
  }
  return out;
}

std::multiset<std::string> images_in(const std::string& path) {
  const auto file = storage::Safetensors::open(path);
  std::multiset<std::string> out;
  const auto images = file->tensor("images");
  const std::size_t bytes = images->data.size() / images->shape[0];
  for (std::size_t i = 0; i < images->shape[0]; ++i)
    out.emplace(images->data.substr(i * bytes, bytes));
  return out;
}

TEST(Ingest, WritesWhatTheIndexSays) {
  const TemporaryFolder folder;
  write_image_folder(folder, "in", 160, 4, 8, 3);
  const auto summary = ingest(options(folder, 4), kQuiet);
  ASSERT_TRUE(summary.has_value()) << summary.error().message;
  const auto json = nlohmann::json::parse(read_file(folder.path("out/dataset.json")));
  EXPECT_EQ(json["format"], 1);
  EXPECT_EQ(json["partitions"], 4);
  EXPECT_EQ(json["samples"], 152);
  EXPECT_EQ(json["channels"], 3);
  EXPECT_EQ(json["image_size"], 8);
  EXPECT_EQ(json["classes"], (std::vector<std::string>{"kind-0", "kind-1", "kind-2", "kind-3"}));
  std::set<std::string> named{"dataset.json"};
  std::map<std::string, std::uint64_t> samples;
  for (const auto& file : json["files"]) {
    const std::string name = file["name"];
    named.insert(name);
    samples[file["role"]] += file["samples"].get<std::uint64_t>();
    EXPECT_EQ(file["bytes"], std::filesystem::file_size(folder.path("out/" + name)));
  }
  std::set<std::string> found;
  for (const auto& [name, bytes] : contents(folder.path("out"))) found.insert(name);
  EXPECT_EQ(found, named);
  EXPECT_EQ(samples["shard"], 152U);
  EXPECT_EQ(samples["partition"], 152U);
  EXPECT_EQ(samples["fit"], 4U);
  EXPECT_EQ(samples["test"], 4U);
  EXPECT_FALSE(std::filesystem::exists(folder.path("out.partial")));
}

TEST(Ingest, HeldBackImagesAreInNoShardAndNothingIsLost) {
  const TemporaryFolder folder;
  write_image_folder(folder, "in", 120, 3, 8, 1);
  ASSERT_TRUE(ingest(options(folder, 3), kQuiet).has_value());
  std::multiset<std::string> all;
  std::set<std::string> distinct;
  for (const auto& [name, bytes] : contents(folder.path("out"))) {
    const bool holds_images =
        name.starts_with("shard-") || name == "fit.safetensors" || name == "test.safetensors";
    if (!holds_images) continue;
    for (const std::string& image : images_in(folder.path("out/" + name))) {
      all.insert(image);
      EXPECT_TRUE(distinct.insert(image).second) << "an image of " << name << " is elsewhere too";
    }
  }
  EXPECT_EQ(all.size(), 120U);
}

TEST(Ingest, TheSameTwiceIsTheSameBytesAndTheSeedMatters) {
  const TemporaryFolder folder;
  write_image_folder(folder, "in", 100, 4, 8, 3);
  IngestOptions first = options(folder, 4, "a"), second = options(folder, 4, "b"),
                other = options(folder, 4, "c");
  other.seed = 1;
  for (const auto& o : {first, second, other}) ASSERT_TRUE(ingest(o, kQuiet).has_value());
  EXPECT_EQ(contents(folder.path("a")), contents(folder.path("b")));
  EXPECT_NE(contents(folder.path("a")), contents(folder.path("c")));
}

TEST(Ingest, KindsThatDifferClearlyBecomePartitions) {
  const TemporaryFolder folder;
  write_image_folder(folder, "in", 400, 4, 8, 1);
  const auto summary = ingest(options(folder, 4), kQuiet);
  ASSERT_TRUE(summary.has_value());
  const auto statistics = read_router_folder(folder.path("out"));
  ASSERT_TRUE(statistics.has_value()) << statistics.error().message;
  for (const PartitionStatistics& partition : statistics->partitions) {
    const auto largest =
        *std::max_element(partition.label_counts.begin(), partition.label_counts.end());
    EXPECT_GT(largest, partition.samples * 8 / 10);
    EXPECT_EQ(partition.label_counts.back(), 0);
  }
  const auto measured = measure_router(folder.path("out"), folder.path("out"), {.1, 1.0}, 1000);
  ASSERT_TRUE(measured.has_value());
  EXPECT_GT(measured->levels[0].accuracy, 0.8);
  EXPECT_NEAR(measured->levels[1].cross_entropy, std::log(4.0),
              0.1);  // pure noise: only the shares
}

// As an ensemble has it from which an expert was removed.
TEST(Ingest, ARouterWorksWithoutOneOfThePartitions) {
  const TemporaryFolder folder;
  write_image_folder(folder, "in", 400, 4, 8, 1);
  ASSERT_TRUE(ingest(options(folder, 4), kQuiet).has_value());
  const std::string dataset = folder.path("out"), router = folder.path("router");
  std::filesystem::create_directory(router);
  for (const auto name : {"router", "partition-0", "partition-2", "partition-3"}) {
    const std::string file = text("/", name, ".safetensors");
    std::filesystem::copy_file(dataset + file, router + file);
  }
  const auto statistics = read_router_folder(router);
  ASSERT_TRUE(statistics.has_value()) << statistics.error().message;
  EXPECT_EQ(statistics->indices, (std::vector<std::int32_t>{0, 2, 3}));
  EXPECT_EQ(statistics->whole_count, 4U);
  EXPECT_EQ(statistics->place_of(1), -1);
  EXPECT_EQ(std::ranges::minmax(statistics->shared.table).min, -1);
  EXPECT_EQ(std::ranges::minmax(statistics->shared.table).max, 2);
  const auto before = measure_router(dataset, router, {.1}, 1000);
  const auto after = measure_router(dataset, dataset, {.1}, 1000);
  ASSERT_TRUE(before.has_value() && after.has_value());
  EXPECT_GT(after->levels[0].accuracy, 0.8);
  EXPECT_LT(before->levels[0].accuracy, after->levels[0].accuracy);  // nothing finds the fourth
  EXPECT_GT(before->levels[0].accuracy, after->levels[0].accuracy / 2);
}

TEST(Ingest, OneExpertAndFewImages) {
  const TemporaryFolder folder;
  write_image_folder(folder, "in", 5, 1, 8, 1);
  const auto summary = ingest(options(folder, 1), kQuiet);
  ASSERT_TRUE(summary.has_value()) << summary.error().message;
  EXPECT_EQ(summary->index.partition_samples, std::vector<std::uint64_t>{3});
  const auto measured = measure_router(folder.path("out"), folder.path("out"), {.2}, 10);
  ASSERT_TRUE(measured.has_value()) << measured.error().message;
  EXPECT_EQ(measured->levels[0].accuracy, 1);
  EXPECT_NEAR(measured->levels[0].cross_entropy, 0, 1e-6);
}

TEST(Ingest, AsManyExpertsAsTheDataCanFillAndNoMore) {
  const TemporaryFolder folder;
  write_image_folder(folder, "in", 30, 5, 8, 1);
  const auto full = ingest(options(folder, 28), kQuiet);
  ASSERT_TRUE(full.has_value()) << full.error().message;
  for (const std::uint64_t n : full->index.partition_samples) EXPECT_EQ(n, 1U);
  const auto over = ingest(options(folder, 29, "more"), kQuiet);
  ASSERT_FALSE(over.has_value());
  EXPECT_THAT(over.error().message, HasSubstr("--partitions 29 is more than the 28 images"));
  EXPECT_FALSE(std::filesystem::exists(folder.path("more.partial")));
}

TEST(Ingest, ImagesThatAreAllAlikeCannotBeDivided) {
  const TemporaryFolder folder;
  for (int i = 0; i < 40; ++i)
    folder.write("in/" + std::to_string(i) + ".png", png_bytes(picture(8, 8, 1, 1)));
  EXPECT_TRUE(ingest(options(folder, 1, "one"), kQuiet).has_value());
  const auto divided = ingest(options(folder, 2), kQuiet);
  ASSERT_FALSE(divided.has_value());
  EXPECT_THAT(divided.error().message, HasSubstr("can be told apart"));
}

TEST(Ingest, OutputThatHoldsSomethingIsLeftAlone) {
  const TemporaryFolder folder;
  write_image_folder(folder, "in", 20, 2, 8, 1);
  folder.write("out/mine.txt", "precious");
  const auto refused = ingest(options(folder, 1), kQuiet);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kConflict);
  EXPECT_EQ(contents(folder.path("out")).size(), 1U);
  std::filesystem::create_directories(folder.path("empty"));
  folder.write("empty.partial/left-over", "of a killed try");
  EXPECT_TRUE(ingest(options(folder, 1, "empty/"), kQuiet).has_value());
  EXPECT_FALSE(std::filesystem::exists(folder.path("empty/left-over")));
}

TEST(Ingest, TwoDoNotWriteTheSameFolder) {
  const TemporaryFolder folder;
  write_image_folder(folder, "in", 20, 2, 8, 1);
  {
    const auto other = storage::lock_folder(folder.path("out.partial"), "");
    ASSERT_TRUE(other);
    folder.write("out.partial/half", "of the other");
    const auto refused = ingest(options(folder, 1), kQuiet);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kConflict);
    EXPECT_THAT(refused.error().message, HasSubstr("another ingestion is writing to"));
    EXPECT_TRUE(std::filesystem::exists(folder.path("out.partial/half")));
  }
  EXPECT_TRUE(ingest(options(folder, 1), kQuiet));
}

// Features that say nothing of the picture: which half of the files it is in.
std::vector<float> halves(std::uint32_t count) {
  std::vector<float> values;
  for (std::uint32_t i = 0; i < count; ++i) {
    const float angle = (i < count / 2 ? 0.F : 1.5F) + 0.001F * static_cast<float>(i);
    values.insert(values.end(), {std::cos(angle), std::sin(angle), 0});
  }
  return values;
}

TEST(Ingest, ImportedFeaturesDecideThePartitions) {
  const TemporaryFolder folder;
  for (int i = 0; i < 200; ++i) {
    const auto name = text("in/", 1000 + i, ".png");
    folder.write(name,
                 i == 7 ? "broken" : png_bytes(picture(8, 8, 1, static_cast<std::uint32_t>(i))));
  }
  const std::vector<float> values = halves(200);
  const std::string_view raw(reinterpret_cast<const char*>(values.data()),
                             values.size() * sizeof(float));
  const storage::TensorView tensor{"features", storage::DType::kF32, {200, 3}, raw};
  ASSERT_TRUE(storage::write_safetensors(folder.path("f.safetensors"), {tensor}, {}).has_value());
  folder.write("f.npy", npy_bytes(200, 3, values));
  for (const char* kind : {"f.npy", "f.safetensors"}) {
    IngestOptions with = options(folder, 2, text("out-", kind));
    with.features = folder.path(kind);
    const auto summary = ingest(with, kQuiet);
    ASSERT_TRUE(summary.has_value()) << summary.error().message;
    std::multiset<std::string> first;
    for (std::uint32_t i = 0; i < 100; ++i) {
      const Image image = picture(8, 8, 1, i);
      first.emplace(image.pixels.begin(), image.pixels.end());
    }
    std::set<bool> halves_seen;
    for (const int k : {0, 1}) {
      std::size_t of_first = 0;
      const auto images =
          images_in(folder.path(text("out-", kind, "/shard-", k, "-0.safetensors")));
      for (const std::string& image : images) of_first += first.contains(image) ? 1 : 0;
      EXPECT_TRUE(of_first == 0 || of_first == images.size())
          << of_first << " of " << images.size();
      halves_seen.insert(of_first == 0);
    }
    EXPECT_EQ(halves_seen.size(), 2U);
    EXPECT_TRUE(
        measure_router(folder.path(text("out-", kind)), folder.path(text("out-", kind)), {.1}, 100)
            .has_value());
  }
  EXPECT_EQ(contents(folder.path("out-f.npy")), contents(folder.path("out-f.safetensors")));
}

TEST(Ingest, ImportedFeaturesThatDoNotFitAreRefused) {
  const TemporaryFolder folder;
  write_image_folder(folder, "in", 20, 2, 8, 1);
  IngestOptions with = options(folder, 2);
  const auto refusal = [&](const std::string& name, const std::string& bytes) {
    with.features = folder.write(name, bytes);
    const auto refused = ingest(with, kQuiet);
    EXPECT_FALSE(std::filesystem::exists(folder.path("out")));
    return refused.has_value() ? "" : refused.error().message;
  };
  EXPECT_THAT(refusal("f.npy", npy_bytes(19, 3, std::vector<float>(57, 1))),
              HasSubstr("f.npy has 19 rows, but there are 20 images (0 of them skipped)"));
  EXPECT_THAT(refusal("f.npy", npy_bytes(20, 1, std::vector<float>(20, NAN))),
              HasSubstr("not finite"));
  EXPECT_THAT(refusal("f.npy", "x"), HasSubstr("f.npy: npy: not a NumPy file"));
  EXPECT_THAT(refusal("f.csv", "x"), HasSubstr("expected a .npy or a .safetensors file"));
  const std::string four(16, '\0');
  EXPECT_THAT(
      refusal("f.safetensors",
              storage::encode_safetensors({{"x", storage::DType::kF32, {4}, four}}, {}).value()),
      HasSubstr("two dimensions"));
}

// `kinds` clearly different ones in turn, of [4,8,8].
std::vector<float> latents_of_kinds(std::uint32_t count, std::uint32_t kinds) {
  std::vector<float> values;
  for (std::uint32_t n = 0; n < count; ++n) {
    for (std::uint32_t i = 0; i < 256; ++i) {
      const auto kind = static_cast<float>(n % kinds), place = static_cast<float>(i),
                 own = static_cast<float>(n);
      values.push_back(6 * std::sin(0.1F * (kind + 1) * place) + 0.2F * std::sin(own * place));
    }
  }
  return values;
}

TEST(Ingest, LatentsBecomeShardsOfHalvesAndTheirScaleIsNoted) {
  const TemporaryFolder folder;
  const std::vector<float> values = latents_of_kinds(400, 4);
  folder.write("in/latents.npy", npy_file("<f4", {400, 4, 8, 8}, floats(values)));
  std::string kinds;
  for (int i = 0; i < 400; ++i) kinds += static_cast<char>(i % 4);
  folder.write("in/labels.npy", npy_file("|u1", {400}, kinds));
  IngestOptions with = options(folder, 4);
  with.latents.scaling = LatentScaling{.scale = 0.18215, .shift = 0.1};
  const auto summary = ingest(with, kQuiet);
  ASSERT_TRUE(summary.has_value()) << summary.error().message;

  const auto json = nlohmann::json::parse(read_file(folder.path("out/dataset.json")));
  EXPECT_EQ(json["channels"], 4);
  EXPECT_EQ(json["image_size"], 8);
  EXPECT_EQ(json["latents"], (nlohmann::json{{"scale", 0.18215}, {"shift", 0.1}}));
  EXPECT_EQ(read_router_statistics(folder.path("out/router.safetensors"))->latents,
            with.latents.scaling);

  // Every latent is in one place, as a half of what it is scaled to.
  std::multiset<std::string> expected, found;
  for (std::size_t n = 0; n < 400; ++n) {
    std::string halves;
    for (std::size_t i = 0; i < 256; ++i) {
      const std::uint16_t half = to_half(static_cast<float>((values[n * 256 + i] - 0.1) * 0.18215));
      halves.append(reinterpret_cast<const char*>(&half), sizeof half);
    }
    expected.insert(std::move(halves));
  }
  for (const auto& [name, bytes] : contents(folder.path("out"))) {
    if (!name.starts_with("shard-") && name != "fit.safetensors" && name != "test.safetensors")
      continue;
    const auto file = storage::Safetensors::open(folder.path("out/" + name));
    const auto latents = file->tensor("latents");
    ASSERT_TRUE(latents.has_value()) << name;
    EXPECT_EQ(latents->dtype, storage::DType::kF16);
    for (std::size_t i = 0; i < latents->shape[0]; ++i)
      found.emplace(latents->data.substr(i * 512, 512));
  }
  EXPECT_EQ(found, expected);

  // Kinds become partitions, the router tells them apart, and the Gaussians are
  // of the scaled values.
  const auto statistics = read_router_folder(folder.path("out")).value();
  EXPECT_LT(*std::ranges::max_element(statistics.shared.whole.mean), 1.2F);
  for (const PartitionStatistics& partition : statistics.partitions)
    EXPECT_GT(*std::ranges::max_element(partition.label_counts), partition.samples * 8 / 10);
  const auto measured = measure_router(folder.path("out"), folder.path("out"), {.1}, 100);
  ASSERT_TRUE(measured.has_value()) << measured.error().message;
  EXPECT_GT(measured->levels[0].accuracy, 0.9);
}

TEST(Ingest, LinearBaselineOfLatentsHasTheirMoments) {
  const TemporaryFolder folder;
  folder.write("in/x.npy", npy_file("<f4", {60, 4, 8, 8}, floats(latents_of_kinds(60, 3))));
  ASSERT_TRUE(ingest(options(folder, 1), kQuiet).has_value());
  const auto statistics = read_router_folder(folder.path("out")).value();
  const auto shard = storage::Safetensors::open(folder.path("out/shard-0-0.safetensors"));
  const auto latents = shard->tensor("latents").value();
  const std::size_t n = latents.shape[0], d = 256;
  double variance = 0;
  for (std::size_t p = 0; p < d; ++p) {
    double sum = 0, squares = 0;
    for (std::size_t i = 0; i < n; ++i) {
      std::uint16_t half = 0;
      std::memcpy(&half, latents.data.data() + 2 * (i * d + p), sizeof half);
      sum += from_half(half);
      squares += double{from_half(half)} * from_half(half);
    }
    const double mean = sum / static_cast<double>(n);
    EXPECT_NEAR(statistics.shared.whole.mean[p], mean, 1e-4);
    variance += (squares / static_cast<double>(n) - mean * mean) / static_cast<double>(d);
  }
  const double t = kLinearTimes[1], alpha = 1 - t;
  EXPECT_NEAR(statistics.shared.linear_a[1],
              (t - alpha * variance) / (alpha * alpha * variance + t * t), 1e-4);
}

TEST(Ingest, SkippedImagesAreCountedAndNamed) {
  const TemporaryFolder folder;
  write_image_folder(folder, "in", 20, 2, 8, 1);
  folder.write("in/kind-0/broken.jpg", "\xff\xd8\xff\xe0 not much");
  ASSERT_TRUE(ingest(options(folder, 2), kQuiet).has_value());
  const auto json = nlohmann::json::parse(read_file(folder.path("out/dataset.json")));
  EXPECT_EQ(json["skipped"], 1);
  EXPECT_EQ(json["skipped_examples"][0]["path"], "kind-0/broken.jpg");
  EXPECT_THAT(json["skipped_examples"][0]["reason"].get<std::string>(), HasSubstr("JPEG"));
}

TEST(Ingest, LinearBaselineIsTheLeastSquaresSolution) {
  const TemporaryFolder folder;
  write_image_folder(folder, "in", 60, 3, 8, 1);
  ASSERT_TRUE(ingest(options(folder, 1), kQuiet).has_value());
  const auto statistics = read_router_folder(folder.path("out"));
  const auto shard = storage::Safetensors::open(folder.path("out/shard-0-0.safetensors"));
  const auto images = shard->tensor("images");
  const std::size_t n = images->shape[0], d = 64;
  const auto pixel = [&](std::size_t i, std::size_t p) {
    return static_cast<unsigned char>(images->data[i * d + p]) / 127.5 - 1;
  };
  // The expected error of a·x_t + b over the noise, as a function of a and b;
  // at the optimum its slopes are zero.
  for (std::size_t level = 0; level < 3; ++level) {
    const double t = kLinearTimes[level], alpha = 1 - t, a = statistics->shared.linear_a[level];
    double slope_a = 0;
    for (std::size_t p = 0; p < d; ++p) {
      const double b = statistics->shared.linear_b[level * d + p];
      double slope_b = 0;
      for (std::size_t i = 0; i < n; ++i) {
        const double x0 = pixel(i, p),
                     residual = (a * alpha + 1) * x0 + b;  // of the part without noise
        slope_b += residual;
        slope_a += residual * alpha * x0 + (a * t - 1) * t;
      }
      EXPECT_NEAR(slope_b / static_cast<double>(n), 0, 1e-5);
    }
    EXPECT_NEAR(slope_a / static_cast<double>(n * d), 0, 1e-5);
  }
}

// ---- Captions ---------------------------------------------------------------

struct Rows {
  std::vector<std::int64_t> begin;
  std::string hashes, tokens;
  std::uint64_t dim = 0;
  std::string tokens_of(std::int32_t row) const {
    const auto at = static_cast<std::size_t>(row);
    const auto bytes = [&](std::int64_t token) {
      return static_cast<std::size_t>(token) * dim * 2;
    };
    return tokens.substr(bytes(begin[at]), bytes(begin[at + 1] - begin[at]));
  }
};

Rows rows_of(const std::string& path) {
  const auto file = storage::Safetensors::open(path);
  Rows rows;
  const auto begin = file->tensor("begin"), tokens = file->tensor("tokens");
  rows.begin.resize(begin->shape[0]);
  std::memcpy(rows.begin.data(), begin->data.data(), begin->data.size());
  rows.hashes = file->tensor("hash")->data;
  rows.tokens = tokens->data;
  rows.dim = tokens->shape[1];
  return rows;
}

std::vector<std::int32_t> column(const std::string& path, const char* name) {
  const auto file = storage::Safetensors::open(path);
  const auto tensor = file->tensor(name);
  std::vector<std::int32_t> out(tensor->shape[0]);
  std::memcpy(out.data(), tensor->data.data(), tensor->data.size());
  return out;
}

std::string halves(const std::vector<float>& values) {
  std::string out;
  for (const float value : values) {
    const std::uint16_t half = to_half(value);
    out.append(reinterpret_cast<const char*>(&half), 2);
  }
  return out;
}

// Sample n of class c has the caption (c, c + .5), of one token if c is even
// and of two otherwise. Every tenth has none.
constexpr std::uint64_t kTokens = 3, kDim = 2;
std::vector<float> caption_of_kind(int kind) {
  const auto c = static_cast<float>(kind);
  return kind % 2 == 0 ? std::vector{c, c + .5F} : std::vector{c, c + .5F, -c, .25F};
}

std::string write_embeddings(const TemporaryFolder& folder, const std::vector<int>& kinds) {
  std::vector<float> embeddings(kinds.size() * kTokens * kDim, 7);
  std::string mask(kinds.size() * kTokens, '\0');
  for (std::size_t n = 0; n < kinds.size(); ++n) {
    if (n % 10 == 0) continue;
    const std::vector<float> caption = caption_of_kind(kinds[n]);
    std::ranges::copy(caption,
                      embeddings.begin() + static_cast<std::ptrdiff_t>(n * kTokens * kDim));
    for (std::size_t t = 0; t < caption.size() / kDim; ++t) mask[n * kTokens + t] = 1;
  }
  const std::string bytes = floats(embeddings), null = floats({.125F, .125F});
  const std::string path = folder.path("embeddings.safetensors");
  EXPECT_TRUE(storage::write_safetensors(
      path,
      {{"embeddings", storage::DType::kF32, {kinds.size(), kTokens, kDim}, bytes},
       {"mask", storage::DType::kU8, {kinds.size(), kTokens}, mask},
       {"null", storage::DType::kF32, {1, kDim}, null}},
      {}));
  return path;
}

TEST(Ingest, HoldsEachDistinctCaptionOnceBesideItsShard) {
  const TemporaryFolder folder;
  constexpr std::uint32_t kImages = 160, kKinds = 4;
  write_image_folder(folder, "in", kImages, kKinds, 8, 3);
  const auto source = open_source(folder.path("in"), CaptionChoice::kOff);
  std::vector<int> kinds;
  while (auto sample = (*source)->next().value()) kinds.push_back(sample->label->back() - '0');
  ASSERT_EQ(kinds.size(), kImages);
  IngestOptions asked = options(folder, 4);
  asked.caption_embeddings = write_embeddings(folder, kinds);
  const auto summary = ingest(asked, kQuiet);
  ASSERT_TRUE(summary.has_value()) << summary.error().message;
  EXPECT_EQ(summary->captions, kKinds);
  EXPECT_EQ(summary->uncaptioned, kImages / 10);
  const auto json = nlohmann::json::parse(read_file(folder.path("out/dataset.json")));
  EXPECT_EQ(json["text"], (nlohmann::json{{"dim", 2}, {"encoder", "imported"}, {"longest", 2}}));

  std::uint64_t checked = 0, without = 0;
  for (const auto& file : json["files"]) {
    const std::string name = file["name"];
    if (file["role"] != "shard" && file["role"] != "fit" && file["role"] != "test") continue;
    const std::string of = name.starts_with("shard-") ? name.substr(6) : name;
    const Rows rows = rows_of(folder.path("out/captions-" + of));
    EXPECT_EQ(rows.tokens_of(0), halves({.125F, .125F})) << "row 0 is the null caption";
    for (std::size_t row = 0; row + 1 < rows.begin.size(); ++row) {
      EXPECT_EQ(blake2b(rows.tokens_of(static_cast<std::int32_t>(row))).view(),
                rows.hashes.substr(row * Hash::kBytes, Hash::kBytes));
    }
    const std::vector<std::int32_t> captions = column(folder.path("out/" + name), "caption"),
                                    labels = column(folder.path("out/" + name), "labels");
    const std::set<std::int32_t> used(captions.begin(), captions.end());
    EXPECT_LE(*used.rbegin() + 1, static_cast<std::int32_t>(rows.begin.size()) - 1);
    for (std::size_t i = 0; i < captions.size(); ++i) {
      ++checked;
      without += captions[i] == 0 ? 1 : 0;
      if (captions[i] == 0) continue;
      EXPECT_EQ(rows.tokens_of(captions[i]), halves(caption_of_kind(labels[i]))) << name;
    }
  }
  EXPECT_EQ(checked, kImages);
  EXPECT_EQ(without, kImages / 10);
}

TEST(Ingest, ADatasetWithoutCaptionsIsAsItWas) {
  const TemporaryFolder folder;
  write_image_folder(folder, "in", 40, 2, 8, 3);
  folder.write("in/kind-0/metadata.jsonl", "no json");
  IngestOptions off = options(folder, 2);
  EXPECT_THAT(ingest(off, kQuiet).error().message, HasSubstr("metadata.jsonl line 1"));
  off.captions = CaptionChoice::kOff;
  ASSERT_TRUE(ingest(off, kQuiet).has_value());
  EXPECT_FALSE(nlohmann::json::parse(read_file(folder.path("out/dataset.json"))).contains("text"));
  for (const auto& [name, bytes] : contents(folder.path("out")))
    EXPECT_FALSE(name.starts_with("captions-"));
}

TEST(Ingest, BadCaptionEmbeddingsAreNamed) {
  const TemporaryFolder folder;
  write_image_folder(folder, "in", 40, 2, 8, 3);
  const std::string path = folder.path("bad.safetensors"), null = floats({0, 0});
  const auto attempt = [&](const std::vector<storage::TensorView>& tensors) {
    EXPECT_TRUE(storage::write_safetensors(path, tensors, {}));
    IngestOptions asked = options(folder, 2);
    asked.caption_embeddings = path;
    const auto summary = ingest(asked, kQuiet);
    EXPECT_FALSE(summary);
    EXPECT_FALSE(std::filesystem::exists(folder.path("out.partial")));
    return summary ? "" : summary.error().message;
  };
  std::vector<float> numbers(40 * 2, 1);
  const std::string good = floats(numbers), mask(40, '\1');
  const storage::TensorView its_mask{"mask", storage::DType::kU8, {40, 1}, mask},
      its_null{"null", storage::DType::kF32, {1, 2}, null};
  EXPECT_THAT(attempt({{"embeddings", storage::DType::kF32, {40, 1, 2}, good}, its_mask}),
              HasSubstr("bad.safetensors: expected a tensor `null`"));
  EXPECT_THAT(attempt({{"embeddings", storage::DType::kF32, {40, 2}, good}, its_mask, its_null}),
              HasSubstr("expected `embeddings` [N,L,D] of F16, BF16 or F32, found F32 [40,2]"));
  EXPECT_THAT(attempt({{"embeddings", storage::DType::kF32, {20, 1, 4}, good}, its_mask, its_null}),
              HasSubstr("expected `mask` of [20,1]"));
  const std::string few = floats(std::vector<float>(39 * 2, 1)), short_mask(39, '\1');
  EXPECT_THAT(attempt({{"embeddings", storage::DType::kF32, {39, 1, 2}, few},
                       {"mask", storage::DType::kU8, {39, 1}, short_mask},
                       its_null}),
              HasSubstr("has 39 rows, but there are 40 images"));
  const std::string zeros(40, '\0');
  EXPECT_THAT(attempt({{"embeddings", storage::DType::kF32, {40, 1, 2}, good},
                       {"mask", storage::DType::kU8, {40, 1}, zeros},
                       its_null}),
              HasSubstr("expected a `mask` that keeps tokens, found only zeros"));
  numbers[2 * 17] = 1e6F;
  const std::string large = floats(numbers);
  EXPECT_THAT(
      attempt({{"embeddings", storage::DType::kF32, {40, 1, 2}, large}, its_mask, its_null}),
      HasSubstr("the caption of sample 17: expected finite numbers up to 65504"));
}

}  // namespace
}  // namespace skerry::diffusion
