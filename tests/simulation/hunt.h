// SPDX-License-Identifier: Apache-2.0
// Shrinks the schedule of a failing seed, and hunts planted bugs. Each run has
// a process of its own, since a failed CHECK is a finding, too.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "tests/simulation/simulate.h"

namespace skerry::simulation {

// The faults of a seed's schedule without which the same rule is still broken,
// left out as far as it goes. None if the seed breaks no rule.
struct Shrunk {
  std::string id;  // of the rule
  std::size_t before = 0;
  std::set<std::uint32_t> faults;
};
std::optional<Shrunk> shrink(std::uint64_t seed);

// "1,5,7"
std::string list_text(const std::set<std::uint32_t>& numbers);
std::set<std::uint32_t> parse_list(const std::string& text);

// Each planted bug, or the one of this name, against the seeds from 1 on: a
// table, and a line of JSON. The exit code: 0 if each was found within
// `seeds_limit`.
int hunt_planted(const std::string& name, std::uint64_t seeds_limit, unsigned processes);

}  // namespace skerry::simulation
