// SPDX-License-Identifier: Apache-2.0
// A small expert for tests: weights in a checkpoint's form, each embedder once,
// and no two tensors with the same bytes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/random.h"
#include "cli/ensemble/export_expert.h"
#include "protocol/skerry.pb.h"
#include "storage/testing/testing.h"

namespace skerry::cli {

inline pb::ModelSpec small_model(std::uint32_t classes) {
  pb::ModelSpec model;
  model.set_image_size(8);
  model.set_channels(3);
  model.set_patch_size(4);
  model.set_width(16);
  model.set_depth(2);
  model.set_heads(2);
  model.set_classes(classes);
  return model;
}

struct SyntheticCheckpoint {
  struct Tensor {
    std::vector<std::uint64_t> shape;
    std::string bytes;
  };
  std::map<std::string, Tensor> ema;  // by the model's own parameter names

  SyntheticCheckpoint(const pb::ModelSpec& model, std::uint64_t seed) : seed_(seed) {
    const std::uint64_t h = model.width(), p = model.patch_size(),
                        classes = std::max(1U, model.classes());
    linear("pos_embed.proj", {h, model.channels(), p, p});
    const std::string embedder = "transformer_blocks.0.norm1.emb.";
    linear(embedder + "timestep_embedder.linear_1", {h, 256});
    linear(embedder + "timestep_embedder.linear_2", {h, h});
    add(embedder + "class_embedder.embedding_table.weight", {classes + 1, h});
    for (std::uint32_t i = 0; i < model.depth(); ++i) {
      const std::string block = "transformer_blocks." + std::to_string(i) + ".";
      linear(block + "norm1.linear", {6 * h, h});
      for (const std::string part : {"to_q", "to_k", "to_v", "to_out.0"})
        linear(block + "attn1." + part, {h, h});
      linear(block + "ff.net.0.proj", {4 * h, h});
      linear(block + "ff.net.2", {h, 4 * h});
    }
    linear("proj_out_1", {2 * h, h});
    linear("proj_out_2", {p * p * model.channels(), h});
  }

  // RETURNS: a snapshot: ema/ and the state that an ensemble does not need. In
  // lean training all but raw/ is bf16; here that is the first half of the
  // bytes.
  std::string snapshot(bool lean = false) const {
    std::vector<storage::TensorView> tensors;
    for (const auto& [name, tensor] : ema) {
      for (const std::string kind : {"raw/", "ema/", "m/", "v/"}) {
        const bool halves = lean && kind != "raw/";
        const std::string_view bytes = tensor.bytes;
        tensors.push_back({kind + name, halves ? storage::DType::kBF16 : storage::DType::kF32,
                           tensor.shape, bytes.substr(0, bytes.size() / (halves ? 2 : 1))});
      }
    }
    return storage::value_of(
        storage::encode_safetensors(tensors, {{"format", "skerry-checkpoint"}}));
  }

 private:
  void linear(const std::string& name, const std::vector<std::uint64_t>& shape) {
    add(name + ".weight", shape);
    add(name + ".bias", {shape.front()});
  }
  void add(const std::string& name, const std::vector<std::uint64_t>& shape) {
    std::uint64_t bytes = 4;
    for (const std::uint64_t size : shape) bytes *= size;
    ema[name] = {shape, storage::random_bytes(bytes, seed_ * 1000 + ema.size())};
  }
  std::uint64_t seed_;
};

inline WeightSource source_of(const SyntheticCheckpoint& checkpoint) {
  WeightSource weights;
  for (const auto& [name, tensor] : checkpoint.ema) {
    weights.tensors.push_back({name, storage::DType::kF32, tensor.shape, {}});
  }
  weights.read = [&checkpoint](const std::string& name,
                               const WeightSource::Append& append) -> Result<void> {
    const std::string& bytes = checkpoint.ema.at(name).bytes;
    TRY(append(std::string_view(bytes).substr(0, bytes.size() / 2)));
    return append(std::string_view(bytes).substr(bytes.size() / 2));
  };
  return weights;
}

}  // namespace skerry::cli
