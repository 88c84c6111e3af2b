// SPDX-License-Identifier: Apache-2.0
// One process at a time in a folder that is being made. The lock is the
// kernel's: it goes with the process, however that ends, and leaves no file.
#pragma once

#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace skerry::cli {

// Makes the folder where it is missing; held until the descriptor is closed.
// kConflict, with `busy` as the message, where another process holds it.
Result<UniqueFd> lock_folder(const std::string& folder, const std::string& busy);

}  // namespace skerry::cli
