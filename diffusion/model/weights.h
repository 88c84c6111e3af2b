// SPDX-License-Identifier: Apache-2.0
// The weights of a model: drawn, or read from files. Their names are those of
// diffusers' DiTTransformer2DModel and PixArtTransformer2DModel, so that an
// export only copies. Diffusers repeats a DiT's time and label embedders in
// every block; here they exist once, under block 0. Includes LibTorch: for this
// folder only.
// THREADS: any.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/shapes.h"
#include "storage/safetensors.h"

namespace skerry::diffusion {

// RETURNS: the initial weights of one expert, a function of (seed, expert,
// attempt), as fp32 on the host, in the order of parameter_shapes().
// - Projections: Xavier.
// - Embedders: normal; labels with deviation 1, time with DiT's gain at any
//   width.
// - Gates of a block: zero (adaLN-zero); of a PixArt what its tables are drawn
//   with.
// - What cross-attention adds: zero.
std::vector<at::Tensor> initial_weights(const ModelSpec& model, std::uint64_t seed,
                                        std::uint32_t expert, std::uint32_t attempt);
// RETURNS: the length at which weight normalisation holds the rows of each
// parameter. For the matrices of attention and MLP it is the root mean square
// of their initial length. For all others, and those that start at zero, it is
// 0: they are free.
// This is forced weight normalisation without the paper's other changes: Karras
// et al., "Analyzing and Improving the Training Dynamics of Diffusion Models",
// arXiv 2312.02696, 2.3.
std::vector<double> held_lengths(const ModelSpec& model);

// RETURNS: the weights PREFIX + name of every parameter, checked for type and
// shape, as fp32. Widens the bf16 of a lean checkpoint.
// LIFETIME: copies; the file may be closed.
// ON FAILURE: kCorrupt names the tensor that differs.
Result<std::vector<at::Tensor>> load_weights(const storage::Safetensors& file,
                                             const std::string& prefix, const ModelSpec& model);
// The same from several files, each tensor in one of them.
Result<std::vector<at::Tensor>> load_weights(const std::vector<storage::Safetensors>& files,
                                             const std::string& prefix, const ModelSpec& model);

// RETURNS: whether a file holds weights under the names of the export.
bool holds_weights(const storage::Safetensors& file);
// RETURNS: those weights, if they are exactly the weights of this model.
Result<std::vector<at::Tensor>> exported_weights(const storage::Safetensors& file,
                                                 const ModelSpec& model);

}  // namespace skerry::diffusion
