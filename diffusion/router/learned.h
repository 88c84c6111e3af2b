// SPDX-License-Identifier: Apache-2.0
// The router that is trained: a small DiT with a token of its own (arXiv
// 2501.05450), blind to labels. What an expert has seen of a label comes in
// closed form: p(k | x_t, t, y) ∝ p(k | x_t, t) · π(k | y) / π(k). Includes
// LibTorch: for this folder only. Thread rule: one thread at a time.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>

#include "base/result.h"
#include "diffusion/model/model.h"
#include "diffusion/router/label_shares.h"
#include "diffusion/router/router.h"

namespace skerry::diffusion {

class LearnedRouter final : public Router {
 public:
  LearnedRouter(Dit dit, LabelShares shares);

  // As Router; x_t may have its pixels in one row. Computes on the device of
  // its weights, answers where x_t is.
  at::Tensor log_probabilities(const at::Tensor& x_t, double t, const at::Tensor& labels) override;

 private:
  Dit dit_;
  LabelShares shares_;
};

// The averaged weights of a checkpoint of the router's training, or of the file
// that `ensemble fetch` makes of one, with the label counts of a dataset folder
// or an ensemble's router/. kInvalid where they are not of as many experts.
Result<std::unique_ptr<Router>> load_learned_router(const std::string& weights,
                                                    const std::string& statistics,
                                                    torch::Device device);

}  // namespace skerry::diffusion
