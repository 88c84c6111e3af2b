// SPDX-License-Identifier: Apache-2.0
// A DiT (Peebles & Xie, arXiv 2212.09748) as diffusers' DiTTransformer2DModel
// computes it: labels condition it. As a router it answers logits. Includes
// LibTorch: for this folder only.
// THREADS, ON FAILURE: as model.h.
#pragma once

#include "diffusion/model/model.h"

namespace skerry::diffusion {

class Dit final : public Denoiser {
 public:
  // As make_denoiser().
  Dit(const ModelSpec& model, std::vector<at::Tensor> weights, torch::Device device,
      std::shared_ptr<const Kernels> kernels = reference_kernels(), bool checkpointing = false);

  // REQUIRES: no router; images of image_size.
  at::Tensor forward(const at::Tensor& x_t, const at::Tensor& t,
                     const Condition& condition) const override;
  // RETURNS: the logits [B,K] of p(expert | x_t, t), read from a token of its
  // own beside the image's.
  // REQUIRES: a router.
  at::Tensor logits(const at::Tensor& x_t, const at::Tensor& t) const;

 private:
  struct Block {
    Linear modulation;  // the first of its weights
    Attention attention;
    Mlp mlp;
  };
  at::Tensor activated(const at::Tensor& t, const at::Tensor& labels) const;
  at::Tensor run_block(const at::Tensor& hidden, const at::Tensor& activated,
                       const Block& block) const;
  at::Tensor run_blocks(at::Tensor hidden, const at::Tensor& activated) const;
  at::Tensor head(const at::Tensor& hidden, const at::Tensor& activated) const;

  Linear final_modulation_, final_;
  std::size_t label_table_ = 0;
  std::size_t class_token_ = 0;  // of a router
  std::vector<Block> blocks_;
  at::Tensor positions_;  // [1,T,width]
};

}  // namespace skerry::diffusion
