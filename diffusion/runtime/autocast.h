// SPDX-License-Identifier: Apache-2.0
// Mixed precision for a scope. Includes LibTorch: for this folder only.
#pragma once

#include <torch/torch.h>

namespace skerry::diffusion {

// While it lives, the operators on LibTorch's autocast lists compute in bf16 on
// this thread and this kind of device, above all matrix products. All else
// stays fp32, weights and their gradients included. With `bf16` false it does
// nothing. Use it for the forward pass and the loss; the backward pass follows
// the types that it finds.
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
