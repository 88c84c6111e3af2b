// SPDX-License-Identifier: Apache-2.0
#include "cli/shell/exit_code.h"

namespace skerry::cli {

ExitCode exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalid:
      return kExitUsage;
    case ErrorCode::kNotFound:
      return kExitNotFound;
    case ErrorCode::kConflict:
      return kExitConflict;
    case ErrorCode::kUnauthorised:
      return kExitAuth;
    case ErrorCode::kUnavailable:
      return kExitUnreachable;
    case ErrorCode::kTimeout:
      return kExitTimeout;
    case ErrorCode::kFenced:
    case ErrorCode::kExhausted:
    case ErrorCode::kCorrupt:
    case ErrorCode::kIo:
    case ErrorCode::kCard:
      break;
  }
  return kExitError;
}

ErrorCode code_of_engine(int status) {
  switch (status) {
    case kExitUsage:
      return ErrorCode::kInvalid;
    case kExitNotFound:
      return ErrorCode::kNotFound;
    case kExitConflict:
      return ErrorCode::kConflict;
    default:
      return ErrorCode::kIo;
  }
}

}  // namespace skerry::cli
