// SPDX-License-Identifier: Apache-2.0
#include "diffusion/model/text_encoder_config.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/text.h"

namespace skerry::diffusion {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::int64_t kMostVocabulary = 1 << 20;
constexpr std::int64_t kMostWidth = 1 << 17;
constexpr std::int64_t kMostLayers = 256;
constexpr std::int64_t kMostDistance = 1 << 16;

// A null or missing value is the default, as in transformers.
template <class Value>
Value value_of(const Json& json, const char* key, Value otherwise) {
  const auto found = json.find(key);
  return found == json.end() || found->is_null() ? otherwise : found->get<Value>();
}

// What kind of model this is, in the words of its config.
std::string kind_of(const Json& json) {
  const Json architectures = json.value("architectures", Json());
  if (architectures.is_array() && !architectures.empty() && architectures[0].is_string())
    return architectures[0].get<std::string>();
  const Json type = json.value("model_type", json.value("_class_name", Json()));
  return type.is_string() ? type.get<std::string>() : "a config without model_type";
}

Result<void> check_kind(const std::string& path, const Json& json) {
  if (value_of<std::string>(json, "model_type", "") != "t5") {
    return fail(ErrorCode::kInvalid,
                text(path, ": expected T5, found ", kind_of(json), ": use --caption-embeddings"));
  }
  const auto forward = value_of<std::string>(json, "feed_forward_proj", "relu");
  if (forward == "relu" || forward == "gated-gelu") return {};
  return fail(ErrorCode::kInvalid, text(path, ": feed_forward_proj: expected relu or gated-gelu, ",
                                        "found ", forward, ": use --caption-embeddings"));
}

Result<void> check_sizes(const std::string& path, const TextEncoderConfig& config) {
  const auto within = [](std::int64_t value, std::int64_t most) {
    return value >= 1 && value <= most;
  };
  const bool sane =
      within(config.vocab_size, kMostVocabulary) && within(config.d_model, kMostWidth) &&
      within(config.d_kv, kMostWidth) && within(config.d_ff, kMostWidth) &&
      within(config.num_layers, kMostLayers) && within(config.num_heads, kMostWidth) &&
      within(config.relative_attention_num_buckets, kMostDistance) &&
      config.relative_attention_num_buckets % 4 == 0 &&
      within(config.relative_attention_max_distance, kMostDistance) &&
      config.relative_attention_max_distance > config.relative_attention_num_buckets / 4 &&
      std::isfinite(config.layer_norm_epsilon) && config.layer_norm_epsilon >= 0;
  if (sane) return {};
  return fail(ErrorCode::kCorrupt,
              text(path, ": expected sizes from 1, relative_attention_num_buckets a multiple of 4 ",
                   "and relative_attention_max_distance above a quarter of it"));
}

// nlohmann's own exceptions say which key is of another type.
Result<TextEncoderConfig> parse(const std::string& path, const Json& json) try {
  TRY(check_kind(path, json));
  TextEncoderConfig config;
  for (const auto& [key, value] :
       {std::pair{"vocab_size", &config.vocab_size},
        {"d_model", &config.d_model},
        {"d_kv", &config.d_kv},
        {"d_ff", &config.d_ff},
        {"num_layers", &config.num_layers},
        {"num_heads", &config.num_heads},
        {"relative_attention_num_buckets", &config.relative_attention_num_buckets},
        {"relative_attention_max_distance", &config.relative_attention_max_distance}}) {
    *value = value_of(json, key, *value);
  }
  config.layer_norm_epsilon = value_of(json, "layer_norm_epsilon", config.layer_norm_epsilon);
  config.is_gated = value_of<std::string>(json, "feed_forward_proj", "relu") == "gated-gelu";
  TRY(check_sizes(path, config));
  return config;
} catch (const Json::exception& error) {
  return fail(ErrorCode::kCorrupt, text(path, ": ", error.what()));
}

// RETURNS: the part of a pipeline's folder, or the folder itself.
std::string part_of(const std::string& folder, const char* part) {
  std::error_code error;
  const std::string below = folder + "/" + part;
  return fs::is_directory(below, error) ? below : folder;
}

}  // namespace

Result<TextEncoderConfig> read_text_encoder_config(const std::string& folder) {
  const std::string path = folder + "/config.json";
  std::ifstream file(path);
  if (!file) {
    return fail(ErrorCode::kNotFound,
                text("cannot read ", path, ": expected the folder of a T5 encoder, or a ",
                     "pipeline's with text_encoder/ and tokenizer/"));
  }
  const Json json = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return fail(ErrorCode::kCorrupt, text(path, " is not a JSON object"));
  return parse(path, json);
}

Result<TextEncoderFiles> TextEncoderFiles::open(const std::string& folder) {
  const std::string model = part_of(folder, "text_encoder");
  TextEncoderFiles files;
  ASSIGN_OR_RETURN(files.config, read_text_encoder_config(model));
  ASSIGN_OR_RETURN(files.weights, WeightFiles::open(model, "model"));
  for (const TextEncoderTensor& tensor : text_encoder_tensors(files.config))
    TRY(files.tensor(tensor));
  files.tokenizer = part_of(folder, "tokenizer") + "/spiece.model";
  std::error_code error;
  if (!fs::is_regular_file(files.tokenizer, error)) {
    return fail(ErrorCode::kInvalid, text("there is no tokenizer: expected ", files.tokenizer,
                                          ", the SentencePiece model that comes with the encoder"));
  }
  return files;
}

Result<storage::TensorView> TextEncoderFiles::tensor(const TextEncoderTensor& tensor) const {
  // The table of tokens has two names, of which a folder may keep either.
  constexpr const char* kOther = "encoder.embed_tokens.weight";
  const bool other =
      tensor.name == "shared.weight" && !weights.contains(tensor.name) && weights.contains(kOther);
  return weights.tensor(other ? kOther : tensor.name, tensor.shape);
}

std::vector<TextEncoderTensor> text_encoder_tensors(const TextEncoderConfig& config) {
  const std::int64_t d = config.d_model, inner = config.num_heads * config.d_kv;
  std::vector<TextEncoderTensor> all{
      {"shared.weight", {config.vocab_size, d}},
      {"encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
       {config.relative_attention_num_buckets, config.num_heads}}};
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    const std::string attention = text("encoder.block.", i, ".layer.0."),
                      forward = text("encoder.block.", i, ".layer.1.");
    all.push_back({attention + "layer_norm.weight", {d}});
    for (const char* part : {"q", "k", "v"})
      all.push_back({text(attention, "SelfAttention.", part, ".weight"), {inner, d}});
    all.push_back({attention + "SelfAttention.o.weight", {d, inner}});
    all.push_back({forward + "layer_norm.weight", {d}});
    if (config.is_gated) {
      all.push_back({forward + "DenseReluDense.wi_0.weight", {config.d_ff, d}});
      all.push_back({forward + "DenseReluDense.wi_1.weight", {config.d_ff, d}});
    } else {
      all.push_back({forward + "DenseReluDense.wi.weight", {config.d_ff, d}});
    }
    all.push_back({forward + "DenseReluDense.wo.weight", {d, config.d_ff}});
  }
  all.push_back({"encoder.final_layer_norm.weight", {d}});
  return all;
}

}  // namespace skerry::diffusion
