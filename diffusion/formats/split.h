// SPDX-License-Identifier: Apache-2.0
// Decides which samples to hold back from training, from the count and the seed
// alone.
#pragma once

#include <cstdint>
#include <vector>

namespace skerry::diffusion {

struct Split {
  std::vector<std::uint32_t> train;  // ascending
  std::vector<std::uint32_t> fit;    // ascending: the router's curves are fitted on these
  std::vector<std::uint32_t> test;   // ascending: nothing is ever fitted on these
};
constexpr std::uint32_t kMaxHeldBack = 10'000;

// Holds back 5 %, at least 2 and at most kMaxHeldBack, in two halves.
// REQUIRES: count >= 3.
Split split_samples(std::uint32_t count, std::uint64_t seed);

}  // namespace skerry::diffusion
