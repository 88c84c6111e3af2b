// SPDX-License-Identifier: Apache-2.0
// Gradient checkpointing (Chen et al., arXiv 1604.06174). A checkpointed part
// of the forward pass keeps only its operands, and computes the values between
// anew for the gradients. It runs the same operations in the same order under
// the same autocast, so the bits are the same as without. Includes LibTorch:
// for this folder only.
#pragma once

#include <torch/torch.h>

#include <functional>

namespace skerry::diffusion {

using Part = std::function<at::Tensor(const std::vector<at::Tensor>& operands)>;

// RETURNS: part(operands). `weights` are the leaves that `part` reads beside
// them; all operands and weights require gradients.
// LIFETIME: everything that `part` refers to outlives the backward pass.
at::Tensor checkpointed(const Part& part, at::TensorList operands, at::TensorList weights);

}  // namespace skerry::diffusion
