// SPDX-License-Identifier: Apache-2.0
// A fleet as large as promised: what the coordinator's core does with ten
// thousand nodes, on the virtual clock (L1, L4), and what it costs.
#pragma once

#include <cstdint>

namespace skerry::simulation {

// Half as many experts as nodes, so that the other half can take them over. One
// line of JSON; the exit code: 0 if every promise is kept.
int run_fleet(std::uint64_t nodes);

}  // namespace skerry::simulation
