// SPDX-License-Identifier: Apache-2.0
// Many seeds, over a few processes, added up to the one line of JSON.
#pragma once

#include <cstdint>

namespace skerry::simulation {

// The exit code: 0 if nothing was violated, every seed had its faults and its
// virtual time, and every kind of fault took place in a quarter of the seeds
// (of a hundred or more).
int run_many(std::uint64_t from, std::uint64_t seeds, unsigned processes);

}  // namespace skerry::simulation
