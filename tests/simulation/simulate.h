// SPDX-License-Identifier: Apache-2.0
// One seed from start to end: a cluster, its faults, its recovery.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/simulation/cluster.h"

namespace skerry::simulation {

inline constexpr std::size_t kFaultsLeast = 20;  // of a seed

struct Scenario {
  std::uint64_t seed = 1;
  Trace::Keep keep = Trace::Keep::kNothing;
  std::optional<std::set<std::uint32_t>> only;  // faults by number; none: every one
};

struct Report {
  std::uint64_t seed = 0;
  std::vector<Violation> violations;
  Duration virtual_time{};
  std::uint64_t commits = 0;
  std::map<std::string, std::uint64_t> faults;
  std::vector<std::uint32_t> took_place;  // their numbers
  Duration longest_wait{};                // for the next commit, once everything worked again
  std::uint64_t trace_hash = 0;
  std::uint64_t events = 0;
  std::vector<std::string> last_lines;
};

Report simulate(const Scenario& scenario);

}  // namespace skerry::simulation
