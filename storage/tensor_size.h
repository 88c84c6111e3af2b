// SPDX-License-Identifier: Apache-2.0
// The size of a tensor from its shape, with every product checked.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "storage/safetensors.h"

namespace skerry::storage {

// RETURNS: nothing on overflow of 64 bits.
inline std::optional<std::uint64_t> tensor_bytes(DType dtype,
                                                 const std::vector<std::uint64_t>& shape) {
  std::uint64_t total = bytes_of(dtype);
  for (const std::uint64_t size : shape) {
    if (__builtin_mul_overflow(total, size, &total)) return std::nullopt;
  }
  return total;
}

}  // namespace skerry::storage
