// SPDX-License-Identifier: Apache-2.0
// A PixArt (Chen et al., arXiv 2310.00426 and 2403.04692) as diffusers'
// PixArtTransformer2DModel computes it, without micro-conditions: captions
// condition it by cross-attention. Includes LibTorch: for this folder only.
// THREADS, ON FAILURE: as model.h.
#pragma once

#include "diffusion/model/model.h"

namespace skerry::diffusion {

class Pixart final : public Denoiser {
 public:
  // As make_denoiser().
  Pixart(const ModelSpec& model, std::vector<at::Tensor> weights, torch::Device device,
         std::shared_ptr<const Kernels> kernels = reference_kernels(), bool checkpointing = false);

  // REQUIRES: images of any height and width that the patch size divides.
  at::Tensor forward(const at::Tensor& x_t, const at::Tensor& t,
                     const Condition& condition) const override;

 private:
  struct Block {
    std::size_t table = 0;  // the first of its weights
    Attention attention, cross_attention;
    Mlp mlp;
  };
  // What all blocks read: [B,6,W], [B,N,W] and [B,1,N].
  struct Context {
    at::Tensor six, text, bias;
  };
  Context context(const at::Tensor& time, const Condition& condition) const;
  at::Tensor run_block(const at::Tensor& hidden, const Context& context, const Block& block) const;
  at::Tensor head(const at::Tensor& hidden, const at::Tensor& time) const;
  const at::Tensor& positions(const at::Tensor& images) const;

  Linear modulation_, final_;
  Mlp caption_;
  std::size_t table_ = 0;
  std::vector<Block> blocks_;
  // Of the grid of the last images.
  mutable std::int64_t rows_ = 0, columns_ = 0;
  mutable at::Tensor positions_;  // [1,T,width]
};

}  // namespace skerry::diffusion
