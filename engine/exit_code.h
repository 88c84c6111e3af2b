// SPDX-License-Identifier: Apache-2.0
// The exit statuses of the engine's commands: the numbers that `skerry` uses
// for the same errors.
#pragma once

#include "base/result.h"

namespace skerry::engine {

constexpr int kExitOk = 0;

constexpr int exit_code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalid:
    case ErrorCode::kCorrupt:  // of a file that the command names
      return 2;
    case ErrorCode::kNotFound:
      return 3;
    case ErrorCode::kConflict:
      return 6;
    default:
      return 1;
  }
}

}  // namespace skerry::engine
