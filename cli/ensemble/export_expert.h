// SPDX-License-Identifier: Apache-2.0
// Exports an expert's averaged or raw weights with the names and shapes of
// diffusers' DiTTransformer2DModel or PixArtTransformer2DModel.
//
// A checkpoint's tensors have those names already, except for the time and
// label embedders of a DiT. A checkpoint stores them once, under block 0, and
// diffusers expects a copy in every block. The export streams; it never holds a
// whole tensor in memory.
//
// ON FAILURE: kCorrupt, which names the tensor that is missing, unknown or of
// another shape. A failed export leaves no file under the final name.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "protocol/skerry.pb.h"
#include "storage/safetensors.h"

namespace skerry::cli {

// A source of weights: lists the tensors, without "ema/" or "raw/", and reads
// the bytes of one tensor in order.
struct WeightSource {
  using Append = std::function<Result<void>(std::string_view bytes)>;
  std::vector<storage::TensorView> tensors;  // names, types, shapes; data is not read
  std::function<Result<void>(const std::string& name, const Append&)> read;
};

// A tensor of the exported file, and the checkpoint's tensor that it copies.
struct ExportedTensor {
  std::string name;
  std::string from;
  std::vector<std::uint64_t> shape;
};
// RETURNS: the tensors in the order they are written: 19·depth + 6 of a DiT,
// 21·depth + 15 of a PixArt.
std::vector<ExportedTensor> exported_tensors(const pb::ModelSpec& model);

// "[2, 3]".
std::string shape_words(const std::vector<std::uint64_t>& shape);

// RETURNS: the class of diffusers that an expert loads as.
std::string class_of_expert(const pb::ModelSpec& model);
std::string diffusers_config(const pb::ModelSpec& model);

struct ExportForm {
  // "raw": for diffusers' from_pretrained(…, variant="raw"); empty: its
  // default.
  std::string variant;
  // The limit for one file's tensors; only a single larger tensor exceeds it.
  std::uint64_t shard_bytes = 10'000'000'000;
};

// Writes FOLDER/config.json and
// FOLDER/diffusion_pytorch_model[.VARIANT].safetensors. If the weights are
// larger than a shard, writes
// diffusion_pytorch_model[.VARIANT]-00001-of-0000N.safetensors and their index.
// REQUIRES: FOLDER exists.
Result<void> export_expert(const std::string& folder, const pb::ModelSpec& model,
                           const WeightSource& weights, const ExportForm& form = {});

// Writes a small file durably.
Result<void> write_text_file(const std::string& path, std::string_view bytes);

}  // namespace skerry::cli
