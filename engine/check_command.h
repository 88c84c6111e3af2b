// SPDX-License-Identifier: Apache-2.0
// `skerry-engine check`: tests by one small step whether this engine can train
// on a device.
#pragma once

#include <CLI/CLI.hpp>

namespace skerry::engine {

// Adds the command; `exit_code` is set when it has run.
void register_check_command(CLI::App& app, int& exit_code);

}  // namespace skerry::engine
