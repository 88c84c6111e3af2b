// SPDX-License-Identifier: Apache-2.0
// Parses and prints durations, roles and slot phases.
#pragma once

#include <chrono>
#include <string>

#include "base/result.h"
#include "protocol/skerry.pb.h"

namespace skerry::cli {

// Parses "90s", "15m", "24h", "7d", or a number of seconds.
Result<std::chrono::seconds> parse_duration(const std::string& words);

const char* role_name(pb::Role role);
Result<pb::Role> parse_role(const std::string& name);
const char* phase_name(pb::SlotPhase phase);

}  // namespace skerry::cli
