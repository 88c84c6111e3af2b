// SPDX-License-Identifier: Apache-2.0
// run log: a run's history in a folder, for TensorBoard and for other trackers.
//
// `history.jsonl` has a line for each point; `expert-N/` has the same numbers
// for TensorBoard. A second call adds what is new.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/shell/command.h"

namespace skerry::cli {

struct LogOptions {
  std::string folder;
  bool watch = false;  // until the run ends
};

// RETURNS: the exit status.
// ON FAILURE: kNotFound: there is no such run. kConflict: the folder has the
// log of another run. kCorrupt names file and line. kIo, kExhausted.
Result<int> log_run(Command& command, const std::string& run, const LogOptions& options);

}  // namespace skerry::cli
