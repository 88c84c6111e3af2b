// SPDX-License-Identifier: Apache-2.0
// The partition rule: a table from fine centroid to expert, filled so that
// experts get about equally many samples.
//
// The rule groups fine centroids around K coarse ones (k-means of the fine
// centroids, weighted by their samples). It places the clearest cases first,
// under a cap. Then it moves fine centroids, cheapest first, until every
// expert's load lies in [0.92, 1.08] · N/K or no single move helps.
#pragma once

#include <cstdint>
#include <vector>

namespace skerry::diffusion {

struct PartitionTable {
  std::vector<std::int32_t> expert;  // [fine]
  std::vector<std::uint64_t> load;   // [experts], samples
  bool within_caps = false;
  double ratio() const;  // largest load ÷ smallest; infinity if one is empty
};
constexpr double kLowCap = 0.92;
constexpr double kHighCap = 1.08;

// `centroids` is [fine, features]; `counts` [fine] has the samples nearest to
// each.
// REQUIRES: fine >= experts >= 1, no count zero.
PartitionTable build_table(const std::vector<float>& centroids, std::size_t features,
                           const std::vector<std::uint64_t>& counts, std::size_t experts,
                           std::uint64_t seed);

}  // namespace skerry::diffusion
