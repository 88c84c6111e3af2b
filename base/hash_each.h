// SPDX-License-Identifier: Apache-2.0
// Many hashes at once: BLAKE2b is one long chain of additions, so a processor
// that has AVX2 takes four inputs side by side in about the time of one. For
// what is at hand as a whole: a checkpoint's chunks.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/hash.h"

namespace skerry {

// blake2b() of each, in their order. Best for inputs of like length; works for
// any. Any thread.
std::vector<Hash> blake2b_each(std::span<const std::string_view> inputs);

}  // namespace skerry
