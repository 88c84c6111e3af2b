// What stands between the matrix products of a block, fused: each function is one node of the autograd graph where a
// composition of LibTorch's operators is many, over the loops of pointwise.h. For the CPU. Hidden states are fp32; what comes
// from a product and goes into one has the product's type, bf16 under autocast. The same up to rounding as the composition,
// and the same bits for any number of threads. Includes LibTorch: for this folder only.
#pragma once

#include <torch/torch.h>

namespace skerry::diffusion::fused {

// LayerNorm without weights, then · (1 + scale) + shift. x [B,T,W]; shift and scale [B,1,W]. Returns the type of shift.
at::Tensor modulate(const at::Tensor& x, const at::Tensor& shift, const at::Tensor& scale);

// x + y · gate, fp32. x and y [B,T,W]; gate [B,1,W].
at::Tensor add_gated(const at::Tensor& x, const at::Tensor& y, const at::Tensor& gate);

// GELU in the form with tanh.
at::Tensor gelu(const at::Tensor& x);

// Softmax attention of `heads` heads within each sample. rows [B,T,3W]: query, key and value of each token. Returns
// [B,T,W]. Under autocast products are taken in bf16 where the CPU has it, else in fp32.
at::Tensor attention(const at::Tensor& rows, std::int64_t heads);

}  // namespace skerry::diffusion::fused
