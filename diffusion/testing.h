// Small shards, models and folders for the tests of this folder. No LibTorch shows here.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/temp_folder.h"
#include "base/text.h"
#include "diffusion/spec.h"
#include "storage/safetensors.h"

namespace skerry::diffusion::testing {

inline ModelSpec tiny_model() {
  return {.image_size = 8, .channels = 1, .patch_size = 4, .width = 16, .depth = 2, .heads = 2, .classes = 3};
}

inline TrainSpec tiny_training() {
  TrainSpec train;
  train.seed = 7;
  train.expert = 2;
  train.steps = 100;
  train.batch_size = 6;
  train.learning_rate = 1e-2;
  train.clip = 1;
  train.device = -1;
  return train;
}

// Label y has its left columns bright, y·2+1 of them; a little noise. Returns the shard's path.
inline std::string write_shard(const std::string& path, const ModelSpec& model, std::uint32_t count) {
  Stream stream({.seed = count, .purpose = Purpose::kSimulation});
  std::string images(count * model.pixels(), '\0');
  std::vector<std::int32_t> labels(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    labels[i] = model.classes == 0 ? -1 : static_cast<std::int32_t>(i % model.classes);
    for (std::uint64_t p = 0; p < model.pixels(); ++p) {
      const bool bright = static_cast<std::int32_t>(p % model.image_size) <= 2 * labels[i];
      images[i * model.pixels() + p] = static_cast<char>((bright ? 200 : 20) + stream.below(40));
    }
  }
  const std::string_view label_bytes(reinterpret_cast<const char*>(labels.data()), labels.size() * 4);
  const Result<void> written = storage::write_safetensors(
      path,
      {{"images", storage::DType::kU8, {count, model.channels, model.image_size, model.image_size}, images},
       {"labels", storage::DType::kI32, {count}, label_bytes}},
      {});
  EXPECT_TRUE(written) << (written ? "" : written.error().message);
  return path;
}

}  // namespace skerry::diffusion::testing
