// SPDX-License-Identifier: Apache-2.0
// Nodes as JSON, and what a node works on.
//
// LIFETIME: what is returned by pointer lives as long as `node`.
#pragma once

#include <cstdint>
#include <string>

#include "cli/shell/output.h"
#include "protocol/skerry.pb.h"

namespace skerry::cli {

Json node_json(const pb::NodeInfo& node);

// RETURNS: nullptr if the node reported nothing of the slot.
const pb::SlotStatus* status_of(const pb::NodeInfo& node, std::uint32_t slot);
// RETURNS: the first slot with a run; nullptr if there is none.
const pb::SlotStatus* first_busy(const pb::NodeInfo& node);
// RETURNS: what people call a run; its id if the coordinator does not know it
// any more.
std::string run_name(const pb::NodeInfo& node, const pb::SlotStatus& status);

}  // namespace skerry::cli
