// SPDX-License-Identifier: Apache-2.0
// run history: what each commit of a run's experts said.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/result.h"
#include "cli/shell/command.h"

namespace skerry::cli {

// RETURNS: 0 if the commit's time was not measured.
double samples_per_second(const pb::HistoryPoint& point);
Json to_json(std::uint32_t expert, const pb::HistoryPoint& point);

// Visits the expert's points with higher numbers than `after`, the oldest
// first. A failure of `visit` ends it.
// ON FAILURE: kNotFound: there is no such run or expert.
Result<void> each_point(Command& command, const std::string& run, std::uint32_t expert,
                        std::uint64_t after,
                        const std::function<Result<void>(const pb::HistoryPoint&)>& visit);

struct HistoryOptions {
  std::optional<std::uint32_t> expert;  // all
  std::uint64_t after = 0;              // points with higher numbers
};

// Prints the points of each expert, the oldest first.
// RETURNS: the exit status.
// ON FAILURE: kNotFound: there is no such run or expert.
Result<int> print_history(Command& command, const std::string& run, const HistoryOptions& options);

}  // namespace skerry::cli
