// SPDX-License-Identifier: Apache-2.0
// The matrix products, which are where training spends its time. Includes
// LibTorch: for this folder only.
//
// Under autocast to bf16 operands and results are bf16, and so are the
// gradients of operands. A CPU that cannot multiply bf16 rounds them to it and
// multiplies in fp32, which is what such a product sums in: LibTorch's own
// fallback there is a plain loop.
#pragma once

#include <torch/torch.h>

namespace skerry::diffusion {

// Which library computes the gradient of a weight on the CPU. kFastest: MKL
// where the processor has no AVX-512, since oneDNN is slower at it there.
enum class WeightGradient { kOneDnn, kFastest };

// input [..., in] · weight [out, in]ᵀ + bias [out], with its gradients.
//
// On the CPU it calls oneDNN, which LibTorch ships but uses for half precision
// only: at fp32, measured on one core of a Zen 5, 230 GFLOP/s against 100 of
// the MKL that at::linear calls. Elsewhere, and in a LibTorch without it,
// at::linear.
at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                  WeightGradient gradient = WeightGradient::kOneDnn);

// left [B,n,k] · right [B,k,m], with its gradients.
at::Tensor bmm(const at::Tensor& left, const at::Tensor& right);

// What a product gave: bf16, or else fp32.
at::ScalarType type_of_product(const at::Tensor& tensor);

// Which of the two the CPU has: part of what makes bits equal.
const char* cpu_linear_name();
// Whether it multiplies bf16: likewise.
bool cpu_multiplies_bf16();
// It does, and autocast asks it to.
bool multiplies_bf16_now();

}  // namespace skerry::diffusion
