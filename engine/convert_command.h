// SPDX-License-Identifier: Apache-2.0
// skerry-engine convert: turns public weights into those that a run starts
// from.
#pragma once

#include <CLI/CLI.hpp>

namespace skerry::engine {

// Adds the command. It runs while `app` parses and leaves the program's exit
// code in `exit_code`.
void register_convert_command(CLI::App& app, int& exit_code);

}  // namespace skerry::engine
