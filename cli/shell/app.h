// SPDX-License-Identifier: Apache-2.0
// The command line as a whole: parses the words, runs the command, turns its
// outcome into an exit status.
#pragma once

#include <string>
#include <vector>

#include "cli/shell/surroundings.h"

namespace skerry::cli {

// `words` without the program's name. Returns the exit status; errors are
// printed to standard error.
int run_cli(const std::vector<std::string>& words, Surroundings& around);

}  // namespace skerry::cli
