// SPDX-License-Identifier: Apache-2.0
#include "diffusion/formats/split.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/random.h"

namespace skerry::diffusion {

Split split_samples(std::uint32_t count, std::uint64_t seed) {
  SKERRY_CHECK(count >= 3, "too few samples to hold any back");
  const std::uint32_t held = std::clamp<std::uint32_t>(count / 20, 2, kMaxHeldBack);
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  Stream stream(Position{.seed = seed, .purpose = Purpose::kSplit});
  for (std::uint32_t i = 0; i < held; ++i) std::swap(order[i], order[i + stream.below(count - i)]);
  const auto first = order.begin();
  Split split{
      {first + held, order.end()}, {first, first + held / 2}, {first + held / 2, first + held}};
  for (auto* part : {&split.train, &split.fit, &split.test}) std::sort(part->begin(), part->end());
  return split;
}

}  // namespace skerry::diffusion
