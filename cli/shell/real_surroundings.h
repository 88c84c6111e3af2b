// SPDX-License-Identifier: Apache-2.0
// The surroundings of the real program: its terminal, its environment, its
// network.
#pragma once

#include <memory>

#include "cli/shell/surroundings.h"

namespace skerry::cli {

// Also takes over SIGINT: prints the parting words and leaves with status 130,
// whatever was under way. Once a process.
std::unique_ptr<Surroundings> real_surroundings();

}  // namespace skerry::cli
