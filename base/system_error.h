// SPDX-License-Identifier: Apache-2.0
// Turns an error of the operating system into one of ours.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace skerry {

// RETURNS: "cannot <action> <what>: <the system's text>". The code is
// kNotFound, kUnauthorised (permission), kExhausted (disk, quota or memory
// full), else kIo.
Error system_error(std::string_view action, const std::string& what, int error_number);

// The same of a program's data folder or what is in it: says what to do, too.
Error data_folder_error(std::string_view action, const std::string& what, int error_number);

}  // namespace skerry
