// SPDX-License-Identifier: Apache-2.0
// The matrix products, which take most of the time of training. Includes
// LibTorch: for this folder only.
//
// Under autocast to bf16, operands, results and gradients of operands are bf16.
// A CPU that cannot multiply bf16 rounds them to it and multiplies in fp32, the
// type in which such a product sums anyway. LibTorch's own fallback there is a
// plain loop.
#pragma once

#include <torch/torch.h>

namespace skerry::diffusion {

// Which library computes the gradient of a weight on the CPU. kFastest: MKL on
// a processor without AVX-512, since oneDNN is slower there.
enum class WeightGradient { kOneDnn, kFastest };

// RETURNS: input [..., in] · weight [out, in]ᵀ + bias [out], with its
// gradients.
//
// On the CPU it calls oneDNN, which LibTorch ships but uses for half precision
// only. Measured at fp32 on one core of a Zen 5, oneDNN reaches 230 GFLOP/s,
// and the MKL that at::linear calls 100. On other devices, and in a LibTorch
// without oneDNN, it calls at::linear.
at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                  WeightGradient gradient = WeightGradient::kOneDnn);

// RETURNS: left [B,n,k] · right [B,k,m], with its gradients.
at::Tensor bmm(const at::Tensor& left, const at::Tensor& right);

// RETURNS: the type of a product's result: bf16, or else fp32.
at::ScalarType type_of_product(const at::Tensor& tensor);

// RETURNS: which of the two the CPU uses; equal bits depend on it.
const char* cpu_linear_name();
// RETURNS: whether the CPU multiplies bf16; equal bits depend on it.
bool cpu_multiplies_bf16();
// RETURNS: whether it does, and autocast asks for it.
bool multiplies_bf16_now();

}  // namespace skerry::diffusion
