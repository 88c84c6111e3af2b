// SPDX-License-Identifier: Apache-2.0
// Fetches the committed ensemble of a run, finished or not, from the
// coordinator.
#pragma once

#include <string>

#include "base/progress.h"
#include "base/result.h"
#include "cli/ensemble/ensemble_folder.h"
#include "cli/shell/command.h"

namespace skerry::cli {

// RETURNS: the coordinator's reply, unchecked; an expert without a commit has
// no checkpoint in it.
Result<pb::EnsembleReply> describe_ensemble(Command& command, const std::string& run);

// Fetches the ensemble into `folder`. `kept` is that of fetch_ensemble.
// REQUIRES: `folder` does not exist.
// RETURNS: the ensemble that was fetched. If the run dropped checkpoints
// meanwhile, it contains later ones than the first reply.
// ON FAILURE: as check_ensemble and fetch_ensemble.
Result<pb::EnsembleReply> fetch_committed(Command& command, const std::string& run,
                                          const std::string& folder, const Extras& extras,
                                          Terminal& terminal, const std::string& kept = "");

}  // namespace skerry::cli
