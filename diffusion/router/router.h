// SPDX-License-Identifier: Apache-2.0
// The seam between sampling and any router: p(expert | x_t, t, label). Includes
// LibTorch: for this folder only.
// THREADS: one at a time.
#pragma once

#include <torch/torch.h>

namespace skerry::diffusion {

class Router {
 public:
  virtual ~Router() = default;
  // x_t is [B,C,S,S] fp32, t in [0,1] with 1 = noise, labels [B] i64 with −1 =
  // no label.
  // RETURNS: log p(k | x_t, t, label) [B,K], normalised over k; −inf for an
  // expert that has never seen the label.
  virtual at::Tensor log_probabilities(const at::Tensor& x_t, double t,
                                       const at::Tensor& labels) = 0;
};

}  // namespace skerry::diffusion
