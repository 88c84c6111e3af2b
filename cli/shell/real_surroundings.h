// SPDX-License-Identifier: Apache-2.0
// The production Surroundings: the real terminal, environment and network.
#pragma once

#include <memory>

#include "cli/shell/surroundings.h"

namespace skerry::cli {

// Also installs a SIGINT handler, which prints the parting words and exits with
// status 130 at once.
// REQUIRES: called once in a process.
std::unique_ptr<Surroundings> real_surroundings();

}  // namespace skerry::cli
