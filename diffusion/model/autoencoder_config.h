// SPDX-License-Identifier: Apache-2.0
// What a diffusers folder of an AutoencoderKL says about its decoder, without
// LibTorch: config.json, and the tensors that follow from it. Failure rule:
// kNotFound for a missing file, kCorrupt for one that contradicts itself,
// kInvalid for a decoder that is not built here; the message names the file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "diffusion/formats/latents.h"

namespace skerry::diffusion {

struct AutoencoderConfig {
  std::uint32_t latent_channels = 4;
  std::uint32_t out_channels = 3;
  std::vector<std::uint32_t>
      block_out_channels;  // of the encoder's order: the decoder goes back through them
  std::uint32_t layers_per_block = 1;
  std::uint32_t norm_num_groups = 32;
  bool use_post_quant_conv = true;
  bool mid_block_add_attention = true;
  LatentScaling scaling;  // scaling_factor and shift_factor
};
// `folder`/config.json.
Result<AutoencoderConfig> read_autoencoder_config(const std::string& folder);

struct AutoencoderTensor {
  std::string name;
  std::vector<std::int64_t> shape;
};
// Every tensor of the decoder, as diffusers names them.
std::vector<AutoencoderTensor> decoder_tensors(const AutoencoderConfig& config);

}  // namespace skerry::diffusion
