// SPDX-License-Identifier: Apache-2.0
// skerry-engine bench: how fast training steps are here, by model, precision
// and batch, and where their time goes.
#pragma once

#include <CLI/CLI.hpp>

namespace skerry::engine {

// Adds the command. It runs while `app` parses and leaves the program's exit
// code in `exit_code`.
void register_bench_command(CLI::App& app, int& exit_code);

}  // namespace skerry::engine
