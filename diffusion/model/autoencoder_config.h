// SPDX-License-Identifier: Apache-2.0
// Reads the shape of an AutoencoderKL from a diffusers folder, without
// LibTorch: config.json, and the tensors that follow from it.
// ON FAILURE: kNotFound for a missing file, kCorrupt for one that contradicts
// itself, kInvalid for one that this program does not implement. The
// message names the file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "diffusion/formats/latents.h"

namespace skerry::diffusion {

struct AutoencoderConfig {
  std::uint32_t latent_channels = 4;
  std::uint32_t in_channels = 3;
  std::uint32_t out_channels = 3;
  // in the encoder's order; the decoder goes through them backwards
  std::vector<std::uint32_t> block_out_channels;
  std::uint32_t layers_per_block = 1;
  std::uint32_t norm_num_groups = 32;
  bool use_quant_conv = true;
  bool use_post_quant_conv = true;
  bool mid_block_add_attention = true;
  LatentScaling scaling;  // scaling_factor and shift_factor
};
// Reads `folder`/config.json.
Result<AutoencoderConfig> read_autoencoder_config(const std::string& folder);

struct AutoencoderTensor {
  std::string name;
  std::vector<std::int64_t> shape;
};
// RETURNS: every tensor of the decoder, under diffusers' names.
std::vector<AutoencoderTensor> decoder_tensors(const AutoencoderConfig& config);
// The same of the encoder.
std::vector<AutoencoderTensor> encoder_tensors(const AutoencoderConfig& config);

}  // namespace skerry::diffusion
