// SPDX-License-Identifier: Apache-2.0
#include "base/system_error.h"

#include <cerrno>
#include <cstring>

#include "base/text.h"

namespace skerry {
namespace {

ErrorCode code_of(int error_number) {
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
      return ErrorCode::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS:
      return ErrorCode::kUnauthorised;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case ENOMEM:
      return ErrorCode::kExhausted;
    default:
      return ErrorCode::kIo;
  }
}

}  // namespace

Error system_error(std::string_view action, const std::string& what, int error_number) {
  return fail(code_of(error_number),
              text("cannot ", action, " ", what, ": ", std::strerror(error_number)));
}

Error data_folder_error(std::string_view action, const std::string& what, int error_number) {
  Error error = system_error(action, what, error_number);
  error.message += "; mount a writable volume there, or name another folder with --data";
  return error;
}

}  // namespace skerry
