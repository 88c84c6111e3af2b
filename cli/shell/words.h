// SPDX-License-Identifier: Apache-2.0
// Small readings of what people write and of what messages carry.
#pragma once

#include <chrono>
#include <string>

#include "base/result.h"
#include "protocol/skerry.pb.h"

namespace skerry::cli {

// "90s", "15m", "24h", "7d", or seconds.
Result<std::chrono::seconds> parse_duration(const std::string& words);

const char* role_name(pb::Role role);
Result<pb::Role> parse_role(const std::string& name);
const char* phase_name(pb::SlotPhase phase);

}  // namespace skerry::cli
