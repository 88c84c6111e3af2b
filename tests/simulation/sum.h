// SPDX-License-Identifier: Apache-2.0
// Many seeds, over a few processes, added up to the one line of JSON.
#pragma once

#include <cstdint>

namespace skerry::simulation {

// RETURNS: the exit code. It is 0 if no rule was violated and every seed had
// its faults and its virtual time. Of a hundred seeds or more, every kind of
// fault must have struck a quarter.
int run_many(std::uint64_t from, std::uint64_t seeds, unsigned processes);

}  // namespace skerry::simulation
