// SPDX-License-Identifier: Apache-2.0
// Trains one expert of a dataset folder, or its router, to its end without a
// daemon: for direct use, benchmarks and tests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "model/spec.h"

namespace skerry::engine {

struct StandaloneOptions {
  std::string dataset;  // folder
  std::string output;   // checkpoint file
  std::string resume;   // checkpoint file to resume; empty: none
  std::string init;     // folder of an exported expert to start from; empty: random weights
  ModelSpec model;      // image_size, channels, classes and captions are the dataset's
  Architecture architecture = Architecture::kByDataset;
  TrainSpec train;
  std::string events;               // folder for TensorBoard; empty: none
  std::string profile;              // file for a trace of a few steps; empty: none
  std::uint64_t profile_after = 5;  // steps of this call before the traced ones
  std::uint64_t profile_steps = 3;  // > 0
  bool router = false;              // learns p(partition | x_t, t) instead of an expert's velocity
  std::optional<std::uint64_t> stop_after;  // leaves at this step, short of train.steps
};

// Progress goes to stderr: a changing line on a terminal, a last line with the
// speed elsewhere.
Result<void> train_standalone(const StandaloneOptions& options);

}  // namespace skerry::engine
