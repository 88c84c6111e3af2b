// SPDX-License-Identifier: Apache-2.0
// How pictures are drawn from an ensemble: the options that commands share, and
// the words by which skerry-engine is asked. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace CLI {
class App;
}

namespace skerry::cli {

struct Sampling {
  std::uint32_t count = 16;
  std::uint32_t steps = 50;
  std::string solver = "euler";
  double guidance = 1.0;
  std::string route = "ancestral";
  std::string router;                   // empty: the ensemble's
  std::string precision = "fp32";       // or bf16
  std::string vae;                      // empty: pixels need none
  std::optional<std::string> label;     // none: all classes in turn
  std::uint64_t seed = 0;               // the same draws the same images
  std::uint32_t threads = 0;            // 0: the engine's choice
  std::optional<std::uint32_t> expert;  // draws every image, in place of the route
};

// -n, --steps, --solver, … with what `sampling` holds as their defaults. It
// must outlive `command`.
void add_sampling_options(CLI::App& command, Sampling& sampling);

// The engine takes a class by its number. `label` is a class or its number;
// kInvalid for another.
Result<std::string> label_number(const std::string& label, const std::vector<std::string>& classes);

// What draws the grid `output` from the ensemble in `folder`. REQUIRES: the
// label, where there is one, is a number.
std::vector<std::string> sampling_words(const std::string& engine, const std::string& folder,
                                        const Sampling& sampling, const std::string& output);

}  // namespace skerry::cli
