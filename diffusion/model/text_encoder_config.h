// SPDX-License-Identifier: Apache-2.0
// Reads the shape of a T5 encoder from a Hugging Face folder, without LibTorch:
// config.json, and the tensors that follow from it. T5 is by Raffel et al.,
// arXiv 1910.10683; v1.0, v1.1 and Flan are known.
// ON FAILURE: kNotFound for a missing file, kCorrupt for one that contradicts
// itself, kInvalid for another kind of encoder. The message names the file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "diffusion/formats/weight_files.h"

namespace skerry::diffusion {

struct TextEncoderConfig {
  std::int64_t vocab_size = 32128;
  std::int64_t d_model = 512;
  std::int64_t d_kv = 64;  // of a head
  std::int64_t d_ff = 2048;
  std::int64_t num_layers = 6;
  std::int64_t num_heads = 8;
  std::int64_t relative_attention_num_buckets = 32;
  std::int64_t relative_attention_max_distance = 128;
  double layer_norm_epsilon = 1e-6;
  bool is_gated = false;  // v1.1 and Flan: GELU; v1.0: ReLU
};
// Reads `folder`/config.json.
Result<TextEncoderConfig> read_text_encoder_config(const std::string& folder);

struct TextEncoderTensor {
  std::string name;
  std::vector<std::int64_t> shape;
};
// RETURNS: every tensor of the encoder, under transformers' names.
std::vector<TextEncoderTensor> text_encoder_tensors(const TextEncoderConfig& config);

// An encoder's files. Its weights are checked against its config, and not read.
struct TextEncoderFiles {
  TextEncoderConfig config;
  WeightFiles weights;
  std::string tokenizer;  // the path of its spiece.model

  // `folder` is a pipeline's, with text_encoder/ and tokenizer/, or holds both
  // itself.
  static Result<TextEncoderFiles> open(const std::string& folder);
  Result<storage::TensorView> tensor(const TextEncoderTensor& tensor) const;
};

}  // namespace skerry::diffusion
