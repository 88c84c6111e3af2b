// SPDX-License-Identifier: Apache-2.0
// The "model" of the fake engine: a hash chain instead of training. Its state
// after a step depends only on (seed, expert, attempt of each step, step). Two
// runs with the same final checkpoint bytes have taken the same steps from the
// same states. So tests detect a wrong resume at once.
#pragma once

#include <cstdint>
#include <string>

#include "base/hash.h"
#include "base/ids.h"
#include "base/result.h"
#include "storage/safetensors.h"

namespace skerry::fake {

struct Chain {
  std::uint64_t seed = 0;
  std::uint32_t expert = 0;
  Step step = 0;
  Hash state;

  static Chain start(std::uint64_t seed, std::uint32_t expert);
  void advance(std::uint32_t attempt);
  // A falling curve, for people.
  double loss() const;

  // As a safetensors file with the tensors of a checkpoint (ema/, raw/, m/,
  // v/), `weights` floats each.
  Result<std::string> encode(std::size_t weights) const;
  static Result<Chain> decode(const storage::Safetensors& file);
};

}  // namespace skerry::fake
