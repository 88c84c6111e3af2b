// The linear layer, which is where training spends its time. Includes LibTorch: for this folder only.
#pragma once

#include <torch/torch.h>

namespace skerry::diffusion {

// input [..., in] · weight [out, in]ᵀ + bias [out], with its gradients.
//
// On the CPU it calls oneDNN, which LibTorch ships but uses for half precision only: at fp32, measured on one core of a
// Zen 5, 230 GFLOP/s against 100 of the MKL that at::linear calls. Elsewhere, and in a LibTorch without it, at::linear.
at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias);

// Which of the two the CPU has: part of what makes bits equal.
const char* cpu_linear_name();

}  // namespace skerry::diffusion
