// SPDX-License-Identifier: Apache-2.0
// Small shards, models and folders for the tests of this folder. Does not
// include LibTorch.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "base/temp_folder.h"
#include "base/text.h"
#include "diffusion/data/test_shard.h"
#include "model/spec.h"

namespace skerry::diffusion::testing {

inline ModelSpec tiny_model() {
  return {.image_size = 8,
          .channels = 1,
          .patch_size = 4,
          .width = 16,
          .depth = 2,
          .heads = 2,
          .classes = 3};
}

inline ModelSpec tiny_pixart() {
  ModelSpec model = tiny_model();
  model.caption_dim = 12;
  return model;
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

// A shard of write_test_shard; returns its path.
inline std::string write_shard(const std::string& path, const ModelSpec& model,
                               std::uint32_t count) {
  const Result<void> written = write_test_shard(path, model, count);
  EXPECT_TRUE(written) << (written ? "" : written.error().message);
  return path;
}

// Its captions, of write_test_captions.
inline std::string write_captions(const std::string& path, const ModelSpec& model) {
  const Result<void> written = write_test_captions(path, model);
  EXPECT_TRUE(written) << (written ? "" : written.error().message);
  return path;
}

// One of write_test_latents.
inline std::string write_latents(const std::string& path, const ModelSpec& model,
                                 std::uint32_t count) {
  const Result<void> written = write_test_latents(path, model, count);
  EXPECT_TRUE(written) << (written ? "" : written.error().message);
  return path;
}

}  // namespace skerry::diffusion::testing
