// SPDX-License-Identifier: Apache-2.0
// Builds a small shard, for tests and benchmarks. Does not include LibTorch or
// a test framework.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/random.h"
#include "diffusion/formats/half.h"
#include "model/spec.h"
#include "storage/safetensors.h"

namespace skerry::diffusion::testing {

// The same shape as latents: about 2 in every other channel and −2 in the rest.
inline Result<void> write_test_latents(const std::string& path, const ModelSpec& model,
                                       std::uint32_t count) {
  std::vector<float> values(count * model.pixels());
  Stream({.seed = count, .purpose = Purpose::kSimulation}).fill_normal(values);
  std::vector<std::uint16_t> halves;
  const std::uint64_t plane = std::uint64_t{model.image_size} * model.image_size;
  for (std::size_t i = 0; i < values.size(); ++i)
    halves.push_back(to_half((i / plane % 2 == 0 ? 2.0F : -2.0F) + 0.3F * values[i]));
  std::vector<std::int32_t> labels(count);
  for (std::uint32_t i = 0; i < count; ++i)
    labels[i] = model.classes == 0 ? -1 : static_cast<std::int32_t>(i % model.classes);
  const std::string_view bytes(reinterpret_cast<const char*>(halves.data()), halves.size() * 2);
  const std::string_view label_bytes(reinterpret_cast<const char*>(labels.data()),
                                     labels.size() * 4);
  return storage::write_safetensors(path,
                                    {{"latents",
                                      storage::DType::kF16,
                                      {count, model.channels, model.image_size, model.image_size},
                                      bytes},
                                     {"labels", storage::DType::kI32, {count}, label_bytes}},
                                    {});
}

// The captions of write_test_shard: that of label y is row y + 1 of the file.
// Each has model.caption_tokens tokens, or from 1 to 4 where that is 0.
inline Result<void> write_test_captions(const std::string& path, const ModelSpec& model) {
  std::vector<std::uint16_t> tokens;
  std::vector<std::int64_t> begin{0};
  for (std::uint32_t row = 0; row <= model.table_classes(); ++row) {
    const std::uint32_t count = model.caption_tokens > 0 ? model.caption_tokens : row % 4 + 1;
    std::vector<float> values(std::size_t{count} * model.caption_dim);
    Stream({.seed = row, .purpose = Purpose::kSimulation}).fill_normal(values);
    for (const float value : values) tokens.push_back(to_half(value));
    begin.push_back(begin.back() + count);
  }
  const std::string_view bytes(reinterpret_cast<const char*>(tokens.data()), tokens.size() * 2);
  const std::string_view places(reinterpret_cast<const char*>(begin.data()), begin.size() * 8);
  return storage::write_safetensors(path,
                                    {{"begin", storage::DType::kI64, {begin.size()}, places},
                                     {"tokens",
                                      storage::DType::kF16,
                                      {static_cast<std::uint64_t>(begin.back()), model.caption_dim},
                                      bytes}},
                                    {});
}

// Label y has its left columns bright, y·2+1 of them; a little noise. A
// PixArt's has captions too.
inline Result<void> write_test_shard(const std::string& path, const ModelSpec& model,
                                     std::uint32_t count) {
  Stream stream({.seed = count, .purpose = Purpose::kSimulation});
  std::string images(count * model.pixels(), '\0');
  std::vector<std::int32_t> labels(count), captions(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    labels[i] = model.classes == 0 ? -1 : static_cast<std::int32_t>(i % model.classes);
    captions[i] = 1 + static_cast<std::int32_t>(i % model.table_classes());
    for (std::uint64_t p = 0; p < model.pixels(); ++p) {
      const bool bright = static_cast<std::int32_t>(p % model.image_size) <= 2 * labels[i];
      images[i * model.pixels() + p] = static_cast<char>((bright ? 200 : 20) + stream.below(40));
    }
  }
  const std::string_view label_bytes(reinterpret_cast<const char*>(labels.data()),
                                     labels.size() * 4);
  std::vector<storage::TensorView> tensors{
      {"images",
       storage::DType::kU8,
       {count, model.channels, model.image_size, model.image_size},
       images},
      {"labels", storage::DType::kI32, {count}, label_bytes}};
  const std::string_view caption_bytes(reinterpret_cast<const char*>(captions.data()),
                                       captions.size() * 4);
  if (model.is_pixart())
    tensors.push_back({"caption", storage::DType::kI32, {count}, caption_bytes});
  return storage::write_safetensors(path, tensors, {});
}

}  // namespace skerry::diffusion::testing
