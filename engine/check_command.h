// SPDX-License-Identifier: Apache-2.0
// `skerry-engine check`: whether this engine can train on a device, by one
// small step there.
#pragma once

#include <CLI/CLI.hpp>

namespace skerry::engine {

// Adds the command; `exit_code` is set when it has run.
void register_check_command(CLI::App& app, int& exit_code);

}  // namespace skerry::engine
