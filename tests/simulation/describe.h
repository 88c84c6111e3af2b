// SPDX-License-Identifier: Apache-2.0
// Messages as short lines for people, with names in place of ids and hashes.
#pragma once

#include <string>

#include "protocol/skerry.pb.h"
#include "tests/simulation/trace.h"

namespace skerry::simulation {

// Empty for what is said every second and changes nothing: heartbeats that only
// renew.
std::string describe(const pb::ControlRequest& request, const Trace& trace);
std::string describe(const pb::ControlReply& reply, const Trace& trace);

// "demo/0".
std::string expert_text(const std::string& run, std::uint32_t expert, const Trace& trace);

}  // namespace skerry::simulation
