// SPDX-License-Identifier: Apache-2.0
// The fleet in Prometheus's text format.
#pragma once

#include <string>

#include "dashboard/fleet_state.h"

namespace skerry::dashboard {

// Experts of runs that have ended have no series: nothing about them changes.
std::string metrics_text(const FleetState& state);

}  // namespace skerry::dashboard
