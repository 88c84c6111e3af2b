// SPDX-License-Identifier: Apache-2.0
// The denoiser behind one interface, and what its architectures share: patches,
// the time embedder, attention, MLP and gradient checkpointing. Includes
// LibTorch: for this folder only.
// THREADS: one at a time.
// ON FAILURE: LibTorch's exceptions pass through; the folder's public entry
// points turn them into errors.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "diffusion/kernels/kernels.h"
#include "diffusion/model/checkpointed.h"
#include "diffusion/model/weights.h"
#include "model/shapes.h"

namespace skerry::diffusion {

// What an image is of. A DiT reads the labels, a PixArt the captions.
struct Condition {
  at::Tensor labels;    // [B] i64 in [0, null_label]
  at::Tensor captions;  // [B,N,D] fp32 or fp16, padded to the longest
  // [B,N] fp32: 1 keeps a token, 0 hides it. Each caption keeps one at least.
  at::Tensor mask;
};

class Denoiser {
 public:
  virtual ~Denoiser() = default;

  // Inputs are x_t [B,C,H,W] fp32, t [B] fp32 in [0,1] with 1 = noise.
  // RETURNS: the velocity v = ε − x0 (arXiv 2501.05450), [B,C,H,W].
  virtual at::Tensor forward(const at::Tensor& x_t, const at::Tensor& t,
                             const Condition& condition) const = 0;

  const ModelSpec& spec() const { return spec_; }
  const Kernels& kernels() const { return *kernels_; }
  torch::Device device() const { return device_; }
  std::vector<at::Tensor>& weights() { return weights_; }
  const std::vector<at::Tensor>& weights() const { return weights_; }

 protected:
  struct Linear {
    std::size_t weight = 0;  // the bias follows it
  };
  struct Attention {
    Linear to_q, to_k, to_v, to_out;
  };
  struct Mlp {
    Linear in, out;
  };
  // Where each weight stands, by name.
  class Places {
   public:
    explicit Places(const ModelSpec& model);
    std::size_t at(const std::string& name) const;
    Linear linear(const std::string& prefix) const { return {at(prefix + ".weight")}; }
    Attention attention(const std::string& prefix) const;
    Mlp mlp(const std::string& block) const;

   private:
    std::unordered_map<std::string, std::size_t> places_;
  };
  // `time_embedder` is the prefix of its names. `slowest`: the exponent of the
  // frequencies is divided by it.
  Denoiser(const ModelSpec& model, std::vector<at::Tensor> weights, torch::Device device,
           std::shared_ptr<const Kernels> kernels, bool checkpointing,
           const std::string& time_embedder, double slowest);
  Denoiser(Denoiser&&) = default;
  Denoiser& operator=(Denoiser&&) = default;

  const at::Tensor& weight(std::size_t place) const { return weights_[place]; }
  at::Tensor linear(const at::Tensor& input, Linear layer) const;
  at::Tensor attend(const at::Tensor& input, const Attention& layers) const;
  // Of input [B,T,W] to context [B,N,W]; `bias` as Kernels::cross_attention().
  at::Tensor attend(const at::Tensor& input, const at::Tensor& context, const Attention& layers,
                    const at::Tensor& bias) const;
  at::Tensor mlp(const at::Tensor& input, const Mlp& layers) const;
  at::Tensor embed_time(const at::Tensor& t) const;          // [B] → [B,W]
  at::Tensor embed_patches(const at::Tensor& images) const;  // [B,C,H,W] → [B,T,W]
  // [B,T,p·p·C] → [B,C,H,W], whose rows and columns are those of `like`.
  at::Tensor unpatchify(const at::Tensor& rows, const at::Tensor& like) const;
  // RETURNS: part(operands). With checkpointing it keeps the operands only.
  // `first`, `count`: the weights that it reads.
  at::Tensor run(const Part& part, const std::vector<at::Tensor>& operands, std::size_t first,
                 std::size_t count) const;

 private:
  Kernels::Projections projections(const Attention& layers) const;

  ModelSpec spec_;
  torch::Device device_;
  std::shared_ptr<const Kernels> kernels_;
  bool checkpointing_;
  std::vector<at::Tensor> weights_;
  Linear patches_, time_in_, time_out_;
  at::Tensor frequencies_;  // [128]
};

// RETURNS: the sines and cosines of positions, [1, rows·columns, width]. Column
// and row of a token are `columns` and `rows`, fp64 [n] on the host. The first
// half of the width encodes the column, the second the row, as in diffusers.
at::Tensor sin_cos_positions(const at::Tensor& rows, const at::Tensor& columns, std::int64_t width);

// RETURNS: the Dit or the Pixart of this spec.
// REQUIRES: a validated spec; weights in the order of parameter_shapes(), all
// on `device`; kernels that support model and device.
// LIFETIME: with `checkpointing`, a forward pass whose weights require
// gradients keeps only the input of each block. The model must then neither
// move nor be destroyed before its gradients are computed.
std::unique_ptr<Denoiser> make_denoiser(
    const ModelSpec& model, std::vector<at::Tensor> weights, torch::Device device,
    std::shared_ptr<const Kernels> kernels = reference_kernels(), bool checkpointing = false);

}  // namespace skerry::diffusion
