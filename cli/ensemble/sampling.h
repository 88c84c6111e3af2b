// SPDX-License-Identifier: Apache-2.0
// Sampling from an ensemble: the options that commands share, and the command
// line of skerry-engine.
//
// THREADS: one.
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
  std::string router;                // empty: the ensemble's
  std::string precision = "fp32";    // or bf16
  std::string vae;                   // empty: pixels need none
  std::string prompt_embeddings;     // file; empty: the ensemble needs no prompts
  std::vector<std::string> prompts;  // in its place, with the folder of what encodes them
  std::string text_encoder;
  std::optional<std::string> label;     // none: all classes in turn
  std::uint64_t seed = 0;               // the same seed draws the same images
  std::uint32_t threads = 0;            // 0: the engine's choice
  std::optional<std::uint32_t> expert;  // draws every image, instead of the route
};

// Adds -n, --steps, --solver, … with the values in `sampling` as defaults.
// LIFETIME: `sampling` outlives `command`.
void add_sampling_options(CLI::App& command, Sampling& sampling);

// RETURNS: the number of a class, as the engine expects it; `label` is the
// class's name or number.
// ON FAILURE: kInvalid for an unknown class.
Result<std::string> label_number(const std::string& label, const std::vector<std::string>& classes);

// RETURNS: the command line that draws the grid `output` from the ensemble in
// `folder`.
// REQUIRES: the label, if set, is a number.
std::vector<std::string> sampling_words(const std::string& engine, const std::string& folder,
                                        const Sampling& sampling, const std::string& output);

}  // namespace skerry::cli
