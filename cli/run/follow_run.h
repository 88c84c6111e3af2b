// SPDX-License-Identifier: Apache-2.0
// Follows a run until it ends; shared by commands that wait for a run.
#pragma once

#include <functional>
#include <string>

#include "base/result.h"
#include "cli/shell/command.h"

namespace skerry::cli {

// RETURNS: the run in the reply.
// ON FAILURE: also if the reply does not hold exactly one run.
Result<pb::RunInfo> one_run(Command& command, const pb::AdminRequest& request);

// Whether the run is done, failed or stopped.
bool has_ended(const pb::RunInfo& run);

// Calls `seen` with the run every second, and once more at its end. Retries
// while the coordinator is away (patience.h).
// RETURNS: kExitOk if the run is done. kExitUnhealthy if it failed or was
// stopped, which follow_run prints.
// ON FAILURE: a failure of `seen` ends it too.
Result<int> follow_run(Command& command, const std::string& name,
                       const std::function<Result<void>(const pb::RunInfo&)>& seen);

}  // namespace skerry::cli
