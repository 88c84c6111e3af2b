// SPDX-License-Identifier: Apache-2.0
// skerry-engine bench: measures the speed of training steps here by model,
// precision and batch, and the time of each part.
#pragma once

#include <CLI/CLI.hpp>

namespace skerry::engine {

// Adds the command. It runs while `app` parses and leaves the program's exit
// code in `exit_code`.
void register_bench_command(CLI::App& app, int& exit_code);

}  // namespace skerry::engine
