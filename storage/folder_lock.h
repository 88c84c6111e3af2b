// SPDX-License-Identifier: Apache-2.0
// Locks a folder under construction to one process at a time. The kernel holds
// the lock: it ends with the process, even after a crash, and leaves no file.
#pragma once

#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace skerry::storage {

// Creates the folder if it is missing, and locks it.
// ON FAILURE: kConflict with the message `busy` if another process holds it.
// LIFETIME: the lock is held until the descriptor is closed.
Result<UniqueFd> lock_folder(const std::string& folder, const std::string& busy);

}  // namespace skerry::storage
