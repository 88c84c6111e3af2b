// What stands between the matrix products of a block, on a card: the counterpart of fused.h over the kernels of
// card_kernels.cu. Hidden states are fp32; what comes from a product and goes into one has the product's type, bf16 under
// autocast. The same up to rounding as the composition of LibTorch's operators, and the same bits each time. Includes
// LibTorch: for this folder only.
#pragma once

#include <torch/torch.h>

#include <utility>

#include "diffusion/card.h"
#include "diffusion/spec.h"

namespace skerry::diffusion::card {

// Whether the kernels take rows of this model's width: a thread holds eight numbers, and a block has 512 threads with the
// registers for that.
inline bool serves(const ModelSpec& model) { return model.width <= 4096; }

// LayerNorm without weights, then · (1 + scale) + shift. x [B,T,W] fp32; shift and scale [B,1,W]. Returns the type of shift.
at::Tensor modulate(Card& card, const at::Tensor& x, const at::Tensor& shift, const at::Tensor& scale);

// x + y · gate, fp32. x and y [B,T,W]; gate [B,1,W].
at::Tensor add_gated(Card& card, const at::Tensor& x, const at::Tensor& y, const at::Tensor& gate);

// Both, the second first: the sum, and it modulated.
std::pair<at::Tensor, at::Tensor> add_gated_and_modulate(Card& card, const at::Tensor& x, const at::Tensor& y,
                                                         const at::Tensor& gate, const at::Tensor& shift,
                                                         const at::Tensor& scale);

// GELU, in the form with tanh, of x + bias. x [B,T,W]; bias [W].
at::Tensor bias_gelu(Card& card, const at::Tensor& x, const at::Tensor& bias);

// Softmax attention of `heads` heads within each sample, by LibTorch's own kernel. rows [B,T,3W]: query, key and value of
// each token. Returns [B,T,W].
at::Tensor attention(const at::Tensor& rows, std::int64_t heads);

// Whether the kernels compute on `device` what LibTorch's operators do, forward and backward; the error names the first that
// does not. `width` is a multiple of 4.
Result<void> check(Card& card, torch::Device device, std::int64_t width);

// The kernels of a CUDA device, compiled and checked when it is first asked for. nullptr where they do not serve the model
// and, after a warning in the log, where there are none that pass: the reference is computed there. Any thread.
Card* of(torch::Device device, const ModelSpec& model);

}  // namespace skerry::diffusion::card
