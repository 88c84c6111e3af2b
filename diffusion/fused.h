// What stands between the matrix products of a block, fused: each function is one node of the autograd graph where a
// composition of LibTorch's operators is many, over the loops of pointwise.h. For the CPU; results are fp32 whatever the
// operands are. The same up to rounding as the composition, and the same bits for any number of threads. Includes
// LibTorch: for this folder only.
#pragma once

#include <torch/torch.h>

namespace skerry::diffusion::fused {

// LayerNorm without weights, then · (1 + scale) + shift. x [B,T,W]; shift and scale [B,1,W].
at::Tensor modulate(const at::Tensor& x, const at::Tensor& shift, const at::Tensor& scale);

// x + y · gate. x and y [B,T,W]; gate [B,1,W].
at::Tensor add_gated(const at::Tensor& x, const at::Tensor& y, const at::Tensor& gate);

// GELU in the form with tanh.
at::Tensor gelu(const at::Tensor& x);

// Softmax attention of `heads` heads within each sample. rows [B,T,3W]: query, key and value of each token. Returns
// [B,T,W]. Products are taken in fp32, also under autocast.
at::Tensor attention(const at::Tensor& rows, std::int64_t heads);

}  // namespace skerry::diffusion::fused
