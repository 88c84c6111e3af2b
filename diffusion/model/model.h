// SPDX-License-Identifier: Apache-2.0
// The denoiser: a DiT whose parameters bear the names that diffusers'
// DiTTransformer2DModel gives them, so that an export only copies. What
// diffusers repeats in every block (time and label embedders) exists once,
// under block 0. Includes LibTorch: for this folder only. Thread rule: one
// thread at a time. LibTorch's exceptions pass through; the folder's public
// entry points turn them into errors.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "diffusion/kernels/kernels.h"
#include "diffusion/model/spec.h"
#include "storage/safetensors.h"

namespace skerry::diffusion {

// Sines and cosines that the time embedder sees.
inline constexpr std::int64_t kTimeFeatures = 256;

struct ParameterShape {
  std::string name;
  std::vector<std::int64_t> shape;
};
// Every parameter of the model in the order in which training, snapshots and
// the optimiser keep them.
std::vector<ParameterShape> parameter_shapes(const ModelSpec& model);

// The initial weights of one expert, a function of (seed, expert, attempt):
// Xavier for projections, normal for embedders (labels with deviation 1, time
// with DiT's gain at any width), zero for what gates a block (adaLN-zero). fp32
// on the host, in the order of parameter_shapes.
std::vector<at::Tensor> initial_weights(const ModelSpec& model, std::uint64_t seed,
                                        std::uint32_t expert, std::uint32_t attempt);
// What weight normalisation holds the rows of each parameter at: those of the
// matrices of attention and MLP at the root mean square of their length as they
// are drawn; 0 for all else. Forced weight normalisation of Karras et al.,
// "Analyzing and Improving the Training Dynamics of Diffusion Models", arXiv
// 2312.02696, 2.3, without their other changes.
std::vector<double> held_lengths(const ModelSpec& model);

// The weights PREFIX + name of every parameter, checked for type and shape;
// kCorrupt names the tensor that differs. bf16, as a lean checkpoint has it, is
// widened: what is returned is fp32. Copies: the file may go.
Result<std::vector<at::Tensor>> load_weights(const storage::Safetensors& file,
                                             const std::string& prefix, const ModelSpec& model);
// The same from the files that weights are spread over, each tensor in one of
// them.
Result<std::vector<at::Tensor>> load_weights(const std::vector<storage::Safetensors>& files,
                                             const std::string& prefix, const ModelSpec& model);

// Whether a file holds weights under the names of the export.
bool holds_weights(const storage::Safetensors& file);
// Those weights, if they are all of this model and nothing but.
Result<std::vector<at::Tensor>> exported_weights(const storage::Safetensors& file,
                                                 const ModelSpec& model);

class Dit {
 public:
  // REQUIRES: a validated spec; weights in the order of parameter_shapes, all
  // on `device`; kernels that serve model and device.
  // LIFETIME: with `checkpointing` a forward pass whose weights require
  // gradients keeps the input of each block alone. The model must then neither
  // move nor go until its gradients were taken.
  Dit(const ModelSpec& model, std::vector<at::Tensor> weights, torch::Device device,
      std::shared_ptr<const Kernels> kernels = reference_kernels(), bool checkpointing = false);

  // The velocity v = ε − x0 (arXiv 2501.05450) at x_t [B,C,S,S] fp32, t [B]
  // fp32 in [0,1] with 1 = noise, labels [B] i64 in [0, null_label]. Returns
  // [B,C,S,S].
  // REQUIRES: no router.
  at::Tensor forward(const at::Tensor& x_t, const at::Tensor& t, const at::Tensor& labels) const;
  // Of a router: the logits of p(expert | x_t, t), read off a token of its own
  // beside those of the image. [B,K]
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
