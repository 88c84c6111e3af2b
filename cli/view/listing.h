// SPDX-License-Identifier: Apache-2.0
// Lists of the coordinator, fetched page by page.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/shell/command.h"

namespace skerry::cli {

Result<std::vector<pb::NodeInfo>> all_nodes(Command& command);
Result<std::vector<pb::RunInfo>> all_runs(Command& command);  // without their experts

// RETURNS: the events with higher numbers than `after`, of one run or, if
// `run` is empty, of all. `after` becomes the last number that was listed.
// ON FAILURE: also succeeds if some pages have come before the failure.
Result<std::vector<pb::Event>> next_events(Command& command, const std::string& run,
                                           std::uint64_t& after);

}  // namespace skerry::cli
