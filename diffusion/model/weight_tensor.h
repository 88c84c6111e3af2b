// SPDX-License-Identifier: Apache-2.0
// Stored weights as tensors. Includes LibTorch: for this folder only.
#pragma once

#include <torch/torch.h>

#include <vector>

#include "storage/safetensors.h"

namespace skerry::diffusion {

// RETURNS: a copy in fp32, on the host.
// REQUIRES: F32, F16 or BF16.
inline at::Tensor float_tensor(const storage::TensorView& view) {
  const at::ScalarType type = view.dtype == storage::DType::kF16    ? at::kHalf
                              : view.dtype == storage::DType::kBF16 ? at::kBFloat16
                                                                    : at::kFloat;
  const std::vector<std::int64_t> shape(view.shape.begin(), view.shape.end());
  return at::from_blob(const_cast<char*>(view.data.data()), shape, type)
      .to(at::kFloat, false, /*copy=*/true);
}

}  // namespace skerry::diffusion
