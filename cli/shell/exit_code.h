// SPDX-License-Identifier: Apache-2.0
// The exit statuses of `skerry`, for scripts.
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
// RETURNS: the error that an exit status of skerry-engine means. The engine
// uses the same numbers.
ErrorCode code_of_engine(int status);

}  // namespace skerry::cli
