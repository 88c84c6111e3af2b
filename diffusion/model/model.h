// SPDX-License-Identifier: Apache-2.0
// The denoiser: a DiT whose parameters have the names of diffusers'
// DiTTransformer2DModel, so that an export only copies. Diffusers repeats the
// time and label embedders in every block; here they exist once, under block 0.
// Includes LibTorch: for this folder only.
// THREADS: one at a time.
// ON FAILURE: LibTorch's exceptions pass through; the folder's public entry
// points turn them into errors.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "diffusion/kernels/kernels.h"
#include "model/shapes.h"
#include "storage/safetensors.h"

namespace skerry::diffusion {

// RETURNS: the initial weights of one expert, a function of (seed, expert,
// attempt), as fp32 on the host, in the order of parameter_shapes().
// - Projections: Xavier.
// - Embedders: normal; labels with deviation 1, time with DiT's gain at any
//   width.
// - Gates of a block: zero (adaLN-zero).
std::vector<at::Tensor> initial_weights(const ModelSpec& model, std::uint64_t seed,
                                        std::uint32_t expert, std::uint32_t attempt);
// RETURNS: the length at which weight normalisation holds the rows of each
// parameter. For the matrices of attention and MLP it is the root mean square
// of their initial length; for all others 0.
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

class Dit {
 public:
  // REQUIRES: a validated spec; weights in the order of parameter_shapes(), all
  // on `device`; kernels that support model and device.
  // LIFETIME: with `checkpointing`, a forward pass whose weights require
  // gradients keeps only the input of each block. The model must then neither
  // move nor be destroyed before its gradients are computed.
  Dit(const ModelSpec& model, std::vector<at::Tensor> weights, torch::Device device,
      std::shared_ptr<const Kernels> kernels = reference_kernels(), bool checkpointing = false);

  // REQUIRES: no router. Inputs are x_t [B,C,S,S] fp32, t [B] fp32 in [0,1]
  // with 1 = noise, labels [B] i64 in [0, null_label].
  // RETURNS: the velocity v = ε − x0 (arXiv 2501.05450), [B,C,S,S].
  at::Tensor forward(const at::Tensor& x_t, const at::Tensor& t, const at::Tensor& labels) const;
  // RETURNS: the logits [B,K] of p(expert | x_t, t), read from a token of its
  // own beside the image's.
  // REQUIRES: a router.
  at::Tensor logits(const at::Tensor& x_t, const at::Tensor& t) const;

  const ModelSpec& spec() const { return spec_; }
  const Kernels& kernels() const { return *kernels_; }
  torch::Device device() const { return device_; }
  std::vector<at::Tensor>& weights() { return weights_; }
  const std::vector<at::Tensor>& weights() const { return weights_; }

 private:
  struct Linear {
    std::size_t weight = 0;  // the bias follows it
  };
  struct Block {
    Linear modulation, to_q, to_k, to_v, to_out, mlp_in, mlp_out;
  };
  at::Tensor linear(const at::Tensor& input, Linear layer) const;
  at::Tensor condition(const at::Tensor& t, const at::Tensor& labels) const;
  at::Tensor attention(const at::Tensor& input, const Block& block) const;
  at::Tensor run_block(const at::Tensor& hidden, const at::Tensor& activated,
                       const Block& block) const;
  at::Tensor run_checkpointed(const at::Tensor& hidden, const at::Tensor& activated,
                              const Block& block) const;
  at::Tensor embed(const at::Tensor& x_t) const;
  at::Tensor run_blocks(at::Tensor hidden, const at::Tensor& activated) const;
  at::Tensor head(const at::Tensor& hidden, const at::Tensor& activated) const;
  at::Tensor patchify(const at::Tensor& images) const;
  at::Tensor unpatchify(const at::Tensor& rows) const;

  ModelSpec spec_;
  torch::Device device_;
  std::shared_ptr<const Kernels> kernels_;
  bool checkpointing_;
  std::vector<at::Tensor> weights_;
  Linear patches_, time_in_, time_out_, final_modulation_, final_;
  std::size_t label_table_ = 0;
  std::size_t class_token_ = 0;  // of a router
  std::vector<Block> blocks_;
  at::Tensor positions_;    // [1,T,width]
  at::Tensor frequencies_;  // [128]
};

}  // namespace skerry::diffusion
