// SPDX-License-Identifier: Apache-2.0
// Makes a PixArt of the weights of a DiT: it starts to read captions where it
// knew labels. Includes LibTorch: for this folder only.
// THREADS: any.
#pragma once

#include <torch/torch.h>

#include <map>
#include <string>

#include "model/shapes.h"

namespace skerry::diffusion {

using NamedWeights = std::map<std::string, at::Tensor>;  // fp32

// Where block 0 of a DiT keeps the embedders of time and label.
inline const std::string kDitEmbedder = "transformer_blocks.0.norm1.emb.";
// Diffusers divides the frequencies of time by these.
inline constexpr double kDitSlowest = kTimeFeatures / 2 - 1;
inline constexpr double kPixartSlowest = kTimeFeatures / 2;

// RETURNS: [n,W] in fp64: DDPM steps [n] after the first layer of the embedder
// at PREFIX, and after both.
at::Tensor hidden_steps(const NamedWeights& weights, const std::string& prefix,
                        const at::Tensor& steps, double slowest);
at::Tensor embed_steps(const NamedWeights& weights, const std::string& prefix,
                       const at::Tensor& steps, double slowest);

// RETURNS: [W], what a DiT adds to the time for a sample without a label.
at::Tensor null_label(const NamedWeights& dit);

// RETURNS: the weights of `model`.
// - Patches, self-attention and MLPs are the DiT's.
// - The shared modulation is the mean of the blocks'. A block's table is the
//   mean over the time of its own less the shared one, as in PixArt (arXiv
//   2310.00426, 2.3).
// - Cross-attention adds zero; what leads to it is drawn as for a new model.
// REQUIRES: `dit` also holds the time embedder of `model`, fitted to its own
// plus null_label().
NamedWeights dit_to_pixart(const NamedWeights& dit, const ModelSpec& model);

}  // namespace skerry::diffusion
