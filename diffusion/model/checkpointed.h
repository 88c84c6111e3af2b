// SPDX-License-Identifier: Apache-2.0
// Gradient checkpointing (Chen et al., arXiv 1604.06174): a part of the forward
// pass that keeps its operands alone, and computes what stands between anew
// when gradients are asked for. The same operations in the same order and the
// same autocast, so the same bits as without. Includes LibTorch: for this
// folder only.
#pragma once

#include <torch/torch.h>

#include <functional>

namespace skerry::diffusion {

using Part = std::function<at::Tensor(const std::vector<at::Tensor>& operands)>;

// part(operands). `weights` are the leaves that `part` reads beside them; all
// of both require gradients. What `part` refers to must live until the
// gradients are there.
at::Tensor checkpointed(const Part& part, at::TensorList operands, at::TensorList weights);

}  // namespace skerry::diffusion
