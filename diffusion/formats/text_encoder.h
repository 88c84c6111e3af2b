// SPDX-License-Identifier: Apache-2.0
// Encodes captions, as tokens, to what a model attends to. An implementation
// may include LibTorch; this interface does not.
// THREADS: one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace skerry::diffusion {

class TextEncoder {
 public:
  virtual ~TextEncoder() = default;
  virtual std::uint64_t dim() const = 0;  // of a token
  // `ids` holds captions of equal length, one after the other.
  // RETURNS: [ids.size(), dim()], a row for each id.
  // REQUIRES: ids.size() is a multiple of `captions`, and not 0.
  // ON FAILURE: kInvalid: an id that the encoder does not have; kExhausted: out
  // of memory.
  virtual Result<std::vector<float>> encode(std::span<const std::int32_t> ids,
                                            std::size_t captions) = 0;
};

}  // namespace skerry::diffusion
