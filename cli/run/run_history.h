// SPDX-License-Identifier: Apache-2.0
// run history: what each commit of a run's experts said.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "cli/shell/command.h"

namespace skerry::cli {

struct HistoryOptions {
  std::optional<std::uint32_t> expert;  // all
  std::uint64_t after = 0;              // points with higher numbers
};

// Prints the points of each expert, the oldest first.
// RETURNS: the exit status.
// ON FAILURE: kNotFound: there is no such run or expert.
Result<int> print_history(Command& command, const std::string& run, const HistoryOptions& options);

}  // namespace skerry::cli
