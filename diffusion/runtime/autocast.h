// SPDX-License-Identifier: Apache-2.0
// Mixed precision as a scope. Includes LibTorch: for this folder only.
#pragma once

#include <torch/torch.h>

namespace skerry::diffusion {

// While it lives, what LibTorch's autocast lists name computes in bf16 on this
// thread and this kind of device, the matrix products first of all; everything
// else, weights and their gradients included, stays fp32. With `bf16` false it
// does nothing. It is for the forward pass and the loss: the backward pass
// follows the types that it finds.
class Autocast {
 public:
  Autocast(torch::Device device, bool bf16);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  torch::DeviceType device_;
  bool bf16_, enabled_before_ = false;
  at::ScalarType type_before_ = at::kBFloat16;
};

}  // namespace skerry::diffusion
