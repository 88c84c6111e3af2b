// SPDX-License-Identifier: Apache-2.0
// What needs a person, the most urgent first.
#pragma once

#include <cstddef>

#include "cli/shell/output.h"
#include "dashboard/fleet_state.h"

namespace skerry::dashboard {

inline constexpr std::size_t kMatters = 20;

// RETURNS: an array of {"level", "what", "reason", "do"}.
// At most kMatters are listed.
// "level" is bad or warning, "do" says what a person can do, or is null.
cli::Json matters_for_a_person(const FleetState& state);

}  // namespace skerry::dashboard
