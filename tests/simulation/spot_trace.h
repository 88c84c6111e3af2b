// SPDX-License-Identifier: Apache-2.0
// Which machines a spot market gave and took, and when: what --trace reads. A
// file has a change a line, sorted by time:
//
//   TIME_MS,add|remove,NAME
//
// Empty lines and lines that begin with # are skipped. A name that is added
// again after its removal is another machine.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace skerry::simulation {

struct SpotMachine {
  std::string name;  // unique: the second node7 is node7.2
  Duration added{};
  std::optional<Duration> removed;  // none: it stays
};

struct SpotTrace {
  std::vector<SpotMachine> machines;  // in the order of their additions
  Duration end{};                     // of the last change

  // RETURNS: what happens before `limit`, which the trace then lasts until.
  SpotTrace until(Duration limit) const;
};

// ON FAILURE: kInvalid. The message names the line of `file`, what was expected
// and found there, and what to do.
Result<SpotTrace> parse_spot_trace(std::string_view content, const std::string& file);

// Of --speeds, a machine a line: NAME,SPEED. 1 is the speed of every machine
// that is not listed.
// ON FAILURE: as above.
Result<std::map<std::string, double>> parse_spot_speeds(std::string_view content,
                                                        const std::string& file);

}  // namespace skerry::simulation
