// SPDX-License-Identifier: Apache-2.0
// Work in processes of their own, a few at a time: what a CHECK ends is known
// by its signal, and cores are used.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace skerry::simulation {

// Where a child says its lines.
class Mouth {
 public:
  explicit Mouth(int pipe) : pipe_(pipe) {}
  void say(const std::string& line) const;

 private:
  int pipe_;
};

struct Ended {
  std::vector<std::string> lines;
  int signal = 0;  // that ended it; 0: it came to its end
};

// Runs `work` for each number below `jobs`, at most `processes` at once, and
// hands over each end, in any order. What a child prints elsewhere is lost.
void run_apart(std::size_t jobs, unsigned processes,
               const std::function<void(std::size_t, const Mouth&)>& work,
               const std::function<void(std::size_t, const Ended&)>& ended);

}  // namespace skerry::simulation
