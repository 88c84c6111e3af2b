// SPDX-License-Identifier: Apache-2.0
// A run's ensemble as it is committed now, from the coordinator; the run need
// not be finished.
#pragma once

#include <string>

#include "base/progress.h"
#include "base/result.h"
#include "cli/ensemble/ensemble_folder.h"
#include "cli/shell/command.h"

namespace skerry::cli {

// What the coordinator says of it; not checked, and without checkpoints where
// none is committed.
Result<pb::EnsembleReply> describe_ensemble(Command& command, const std::string& run);

// Fetches it into `folder`, which must not exist, and returns what was fetched:
// later checkpoints than at first where the run went on meanwhile and dropped
// some. Fails as check_ensemble and fetch_ensemble do, which say what `kept`
// is.
Result<pb::EnsembleReply> fetch_committed(Command& command, const std::string& run,
                                          const std::string& folder, const Extras& extras,
                                          Terminal& terminal, const std::string& kept = "");

}  // namespace skerry::cli
