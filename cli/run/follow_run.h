// SPDX-License-Identifier: Apache-2.0
// What commands that follow a run until it ends have in common.
#pragma once

#include <functional>
#include <string>

#include "base/result.h"
#include "cli/shell/command.h"

namespace skerry::cli {

// The one run that the answer shows.
Result<pb::RunInfo> one_run(Command& command, const pb::AdminRequest& request);

// done, failed or stopped.
bool has_ended(const pb::RunInfo& run);

// Shows `seen` the run every second, at its end for the last time: kExitOk
// where it is done, kExitUnhealthy where it failed or was stopped, which it
// says. A failure of `seen` ends it too; a coordinator that goes away does not
// (patience.h).
Result<int> follow_run(Command& command, const std::string& name,
                       const std::function<Result<void>(const pb::RunInfo&)>& seen);

}  // namespace skerry::cli
