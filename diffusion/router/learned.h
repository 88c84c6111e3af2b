// SPDX-License-Identifier: Apache-2.0
// The trained router: a small DiT with a token of its own (arXiv 2501.05450),
// blind to labels. The labels that an expert has seen enter in closed form: p(k
// | x_t, t, y) ∝ p(k | x_t, t) · π(k | y) / π(k). Includes LibTorch: for this
// folder only.
// THREADS: one at a time.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>

#include "base/result.h"
#include "diffusion/model/dit.h"
#include "diffusion/router/label_shares.h"
#include "diffusion/router/router.h"

namespace skerry::diffusion {

class LearnedRouter final : public Router {
 public:
  LearnedRouter(Dit dit, LabelShares shares);

  // As Router; x_t may have its pixels in one row. Computes on the device of
  // its weights, returns on the device of x_t.
  at::Tensor log_probabilities(const at::Tensor& x_t, double t, const at::Tensor& labels) override;

 private:
  Dit dit_;
  LabelShares shares_;
};

// Loads the averaged weights from a checkpoint of the router's training, or
// from the file that `ensemble fetch` makes of one. Takes the label counts from
// a dataset folder or an ensemble's router/.
// ON FAILURE: kInvalid if the two have different numbers of experts.
Result<std::unique_ptr<Router>> load_learned_router(const std::string& weights,
                                                    const std::string& statistics,
                                                    torch::Device device);

}  // namespace skerry::diffusion
