// SPDX-License-Identifier: Apache-2.0
// skerry-engine evaluate: measures the router, or an ensemble's velocity, on
// the held-back test half of a dataset folder.
#pragma once

#include <CLI/CLI.hpp>

namespace skerry::engine {

// Adds the command. It runs while `app` parses and leaves the program's exit
// code in `exit_code`.
void register_evaluate_command(CLI::App& app, int& exit_code);

}  // namespace skerry::engine
