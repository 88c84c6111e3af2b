// SPDX-License-Identifier: Apache-2.0
// An expert's weights, averaged or raw, in the names and shapes of diffusers'
// DiTTransformer2DModel. A checkpoint's tensors bear those names already,
// except that the time and label embedders stand there once, under block 0, and
// diffusers wants a copy in every block. Streams: a tensor is never in memory
// as a whole. Failure rule: kCorrupt names the tensor that is missing, unknown
// or of another shape; a failed export leaves no file of the final name.
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

// Where weights come from: what there is, without "ema/" or "raw/", and the
// bytes of one tensor in order.
struct WeightSource {
  using Append = std::function<Result<void>(std::string_view bytes)>;
  std::vector<storage::TensorView> tensors;  // names, types, shapes; data is not read
  std::function<Result<void>(const std::string& name, const Append&)> read;
};

// One tensor of the exported file and the checkpoint's tensor that it is a copy
// of.
struct ExportedTensor {
  std::string name;
  std::string from;
  std::vector<std::uint64_t> shape;
};
// 19·depth + 6 tensors, in the order in which they are written.
std::vector<ExportedTensor> exported_tensors(const pb::ModelSpec& model);

// "[2, 3]".
std::string shape_words(const std::vector<std::uint64_t>& shape);

std::string diffusers_config(const pb::ModelSpec& model);

struct ExportForm {
  std::string
      // "raw": diffusers' from_pretrained(…, variant="raw"); empty: what it
      // loads by itself
      variant;
  std::uint64_t shard_bytes =
      10'000'000'000;  // a file's tensors are no more, but for a tensor that is
};

// Writes FOLDER/config.json and
// FOLDER/diffusion_pytorch_model[.VARIANT].safetensors, or where that would be
// larger than a shard,
// diffusion_pytorch_model[.VARIANT]-00001-of-0000N.safetensors and the index of
// them. FOLDER must be there.
Result<void> export_expert(const std::string& folder, const pb::ModelSpec& model,
                           const WeightSource& weights, const ExportForm& form = {});

// Writes a whole small file durably.
Result<void> write_text_file(const std::string& path, std::string_view bytes);

}  // namespace skerry::cli
