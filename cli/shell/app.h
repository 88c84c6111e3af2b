// SPDX-License-Identifier: Apache-2.0
// The `skerry` program: parses the command line, runs the command, and returns
// its exit status.
#pragma once

#include <string>
#include <vector>

#include "cli/shell/surroundings.h"

namespace skerry::cli {

// `words`: the arguments without the program's name.
// RETURNS: the exit status.
// ON FAILURE: prints the error to standard error.
int run_cli(const std::vector<std::string>& words, Surroundings& around);

}  // namespace skerry::cli
