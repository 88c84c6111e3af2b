// SPDX-License-Identifier: Apache-2.0
// What the operating system said, as an error of ours.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace skerry {

// "cannot <action> <what>: <what the system said>". kNotFound, kUnauthorised
// (permission), kExhausted (disk, quota or memory full), else kIo.
Error system_error(std::string_view action, const std::string& what, int error_number);

}  // namespace skerry
