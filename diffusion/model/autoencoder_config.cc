// SPDX-License-Identifier: Apache-2.0
#include "diffusion/model/autoencoder_config.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/text.h"

namespace skerry::diffusion {
namespace {

using Json = nlohmann::json;

constexpr std::uint32_t kMostChannels = 8192;
constexpr std::uint32_t kMostBlocks = 8;
constexpr std::uint32_t kMostLayers = 16;

Error unknown(const std::string& path, std::string_view key, std::string_view expected,
              const Json& found) {
  return fail(ErrorCode::kInvalid,
              text(path, ": ", key, ": expected ", expected, ", found ", found.dump(),
                   ": export it as TorchScript, which --vae takes too"));
}

// A null or missing value is the default, as in diffusers.
template <class Value>
Value value_of(const Json& json, const char* key, Value otherwise) {
  const auto found = json.find(key);
  return found == json.end() || found->is_null() ? otherwise : found->get<Value>();
}

Result<void> check_kind(const std::string& path, const Json& json) {
  if (value_of<std::string>(json, "_class_name", "") != "AutoencoderKL")
    return unknown(path, "_class_name", "\"AutoencoderKL\"", json.value("_class_name", Json()));
  const auto act = value_of<std::string>(json, "act_fn", "silu");
  if (act != "silu" && act != "swish") return unknown(path, "act_fn", "\"silu\"", act);
  for (const char* const key : {"latents_mean", "latents_std"}) {
    if (const Json found = json.value(key, Json()); !found.is_null())
      return unknown(path, key, "none", found);
  }
  const auto channels = value_of<std::vector<std::uint32_t>>(json, "block_out_channels", {64});
  for (const auto& [key, plain] : {std::pair{"up_block_types", "UpDecoderBlock2D"},
                                   std::pair{"down_block_types", "DownEncoderBlock2D"}}) {
    // A folder of a decoder alone may leave the other out.
    const auto blocks = value_of<std::vector<std::string>>(
        json, key, std::vector<std::string>(key[0] == 'd' ? channels.size() : 1, plain));
    const bool all_plain =
        std::ranges::all_of(blocks, [&](const auto& type) { return type == plain; });
    if (!all_plain || blocks.size() != channels.size())
      return unknown(path, key, text('"', plain, "\" ", channels.size(), " times"), blocks);
  }
  return {};
}

Result<void> check_sizes(const std::string& path, const AutoencoderConfig& config) {
  const auto within = [](std::uint32_t value, std::uint32_t most) {
    return value >= 1 && value <= most;
  };
  const auto divides = [&](std::uint32_t channels) {
    return within(channels, kMostChannels) && channels % config.norm_num_groups == 0;
  };
  const bool sane =
      within(config.latent_channels, kMaxLatentChannels) &&
      (config.out_channels == 1 || config.out_channels == 3) &&
      (config.in_channels == 1 || config.in_channels == 3) &&
      within(static_cast<std::uint32_t>(config.block_out_channels.size()), kMostBlocks) &&
      within(config.layers_per_block, kMostLayers) &&
      within(config.norm_num_groups, kMostChannels) &&
      std::ranges::all_of(config.block_out_channels, divides) && validate(config.scaling);
  if (sane) return {};
  return fail(ErrorCode::kCorrupt,
              text(path, ": expected 1 to ", kMaxLatentChannels,
                   " latent_channels, 1 or 3 in_channels, 1 or 3 out_channels, 1 to ", kMostBlocks,
                   " block_out_channels that norm_num_groups divides, 1 to ", kMostLayers,
                   " layers_per_block and a scaling_factor above 0: one of them is not so"));
}

// nlohmann's own exceptions say which key is of another type.
Result<AutoencoderConfig> parse(const std::string& path, const Json& json) try {
  TRY(check_kind(path, json));
  AutoencoderConfig config;
  config.latent_channels = value_of(json, "latent_channels", 4U);
  config.in_channels = value_of(json, "in_channels", 3U);
  config.out_channels = value_of(json, "out_channels", 3U);
  config.block_out_channels =
      value_of<std::vector<std::uint32_t>>(json, "block_out_channels", {64});
  config.layers_per_block = value_of(json, "layers_per_block", 1U);
  config.norm_num_groups = value_of(json, "norm_num_groups", 32U);
  config.use_quant_conv = value_of(json, "use_quant_conv", true);
  config.use_post_quant_conv = value_of(json, "use_post_quant_conv", true);
  config.mid_block_add_attention = value_of(json, "mid_block_add_attention", true);
  config.scaling.scale = value_of(json, "scaling_factor", 0.18215);
  config.scaling.shift = value_of(json, "shift_factor", 0.0);
  TRY(check_sizes(path, config));
  return config;
} catch (const Json::exception& error) {
  return fail(ErrorCode::kCorrupt, text(path, ": ", error.what()));
}

// Names and shapes in the order of their use.
class Tensors {
 public:
  std::vector<AutoencoderTensor> all;

  void convolution(const std::string& name, std::uint32_t from, std::uint32_t to,
                   std::uint32_t side) {
    add(name, {to, from, side, side}, to);
  }
  void linear(const std::string& name, std::uint32_t width) { add(name, {width, width}, width); }
  void norm(const std::string& name, std::uint32_t channels) { add(name, {channels}, channels); }
  void residual(const std::string& name, std::uint32_t from, std::uint32_t to) {
    norm(name + ".norm1", from);
    convolution(name + ".conv1", from, to, 3);
    norm(name + ".norm2", to);
    convolution(name + ".conv2", to, to, 3);
    if (from != to) convolution(name + ".conv_shortcut", from, to, 1);
  }
  void attention(const std::string& name, std::uint32_t channels) {
    norm(name + ".group_norm", channels);
    for (const char* part : {".to_q", ".to_k", ".to_v", ".to_out.0"}) linear(name + part, channels);
  }
  void middle(const std::string& name, std::uint32_t channels, bool attends) {
    residual(name + ".resnets.0", channels, channels);
    if (attends) attention(name + ".attentions.0", channels);
    residual(name + ".resnets.1", channels, channels);
  }

 private:
  void add(const std::string& name, std::vector<std::int64_t> shape, std::int64_t out) {
    all.push_back({name + ".weight", std::move(shape)});
    all.push_back({name + ".bias", {out}});
  }
};

}  // namespace

Result<AutoencoderConfig> read_autoencoder_config(const std::string& folder) {
  const std::string path = folder + "/config.json";
  std::ifstream file(path);
  if (!file) {
    return fail(
        ErrorCode::kNotFound,
        text("cannot read ", path,
             ": expected the folder of an AutoencoderKL, as its save_pretrained writes it"));
  }
  const Json json = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return fail(ErrorCode::kCorrupt, text(path, " is not a JSON object"));
  return parse(path, json);
}

std::vector<AutoencoderTensor> decoder_tensors(const AutoencoderConfig& config) {
  Tensors tensors;
  if (config.use_post_quant_conv)
    tensors.convolution("post_quant_conv", config.latent_channels, config.latent_channels, 1);
  std::vector<std::uint32_t> channels = config.block_out_channels;
  std::ranges::reverse(channels);
  tensors.convolution("decoder.conv_in", config.latent_channels, channels.front(), 3);
  tensors.middle("decoder.mid_block", channels.front(), config.mid_block_add_attention);
  std::uint32_t from = channels.front();
  for (std::size_t i = 0; i < channels.size(); ++i) {
    const std::string block = text("decoder.up_blocks.", i);
    for (std::uint32_t layer = 0; layer <= config.layers_per_block; ++layer) {
      tensors.residual(text(block, ".resnets.", layer), from, channels[i]);
      from = channels[i];
    }
    if (i + 1 < channels.size()) tensors.convolution(block + ".upsamplers.0.conv", from, from, 3);
  }
  tensors.norm("decoder.conv_norm_out", from);
  tensors.convolution("decoder.conv_out", from, config.out_channels, 3);
  return std::move(tensors.all);
}

std::vector<AutoencoderTensor> encoder_tensors(const AutoencoderConfig& config) {
  Tensors tensors;
  const std::vector<std::uint32_t>& channels = config.block_out_channels;
  std::uint32_t from = channels.front();
  tensors.convolution("encoder.conv_in", config.in_channels, from, 3);
  for (std::size_t i = 0; i < channels.size(); ++i) {
    const std::string block = text("encoder.down_blocks.", i);
    for (std::uint32_t layer = 0; layer < config.layers_per_block; ++layer) {
      tensors.residual(text(block, ".resnets.", layer), from, channels[i]);
      from = channels[i];
    }
    if (i + 1 < channels.size()) tensors.convolution(block + ".downsamplers.0.conv", from, from, 3);
  }
  tensors.middle("encoder.mid_block", from, config.mid_block_add_attention);
  tensors.norm("encoder.conv_norm_out", from);
  const std::uint32_t moments = 2 * config.latent_channels;  // mean and log-variance
  tensors.convolution("encoder.conv_out", from, moments, 3);
  if (config.use_quant_conv) tensors.convolution("quant_conv", moments, moments, 1);
  return std::move(tensors.all);
}

}  // namespace skerry::diffusion
