// SPDX-License-Identifier: Apache-2.0
// What the program's exit status tells a script.
#pragma once

#include "base/result.h"

namespace skerry::cli {

enum ExitCode : int {
  kExitOk = 0,
  kExitError = 1,
  kExitUsage = 2,
  kExitNotFound = 3,
  kExitUnreachable = 4,
  kExitAuth = 5,
  kExitConflict = 6,
  kExitTimeout = 7,
  kExitUnhealthy = 8,
  kExitInterrupted = 130,
};

ExitCode exit_code(ErrorCode code);
// What an exit status of skerry-engine means: its numbers are ours.
ErrorCode code_of_engine(int status);

}  // namespace skerry::cli
