// SPDX-License-Identifier: Apache-2.0
#include "base/result.h"

namespace skerry {

const char* to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalid:
      return "invalid";
    case ErrorCode::kNotFound:
      return "not_found";
    case ErrorCode::kConflict:
      return "conflict";
    case ErrorCode::kUnauthorised:
      return "unauthorised";
    case ErrorCode::kUnavailable:
      return "unavailable";
    case ErrorCode::kTimeout:
      return "timeout";
    case ErrorCode::kFenced:
      return "fenced";
    case ErrorCode::kExhausted:
      return "exhausted";
    case ErrorCode::kCorrupt:
      return "corrupt";
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kCard:
      return "card";
  }
  return "unknown";
}

}  // namespace skerry
