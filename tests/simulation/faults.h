// SPDX-License-Identifier: Apache-2.0
// The schedule of a simulation's faults: which kind, and when, all drawn from
// the seed before anything happens. Each fault draws what it needs from a
// stream of its own number, so that leaving one out leaves the others as they
// were.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"

namespace skerry::simulation {

struct PlannedFault {
  std::uint32_t number = 0;
  Duration at{};
  std::size_t kind = 0;  // of the weights
};

// Bursts, one fault upon the other, some of them of one kind, and quiet
// between. About half of the kinds take part in each seed, so that rare ones
// meet often.
std::vector<PlannedFault> plan_faults(std::uint64_t seed, const std::vector<double>& weights,
                                      Duration from, Duration until);

}  // namespace skerry::simulation
