// SPDX-License-Identifier: Apache-2.0
// What an ensemble folder says about itself, without LibTorch: ensemble.json,
// the label counts of its partitions, and whether it draws latents. Failure
// rule: kNotFound for a missing file, kCorrupt for one that contradicts itself;
// the message names the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "diffusion/formats/latents.h"
#include "diffusion/model/spec.h"

namespace skerry::diffusion {

// Experts are counted from 0 here, by their place among those of the folder;
// `indices` has their numbers in the run, which are also those of their
// partitions and folders. Some may be missing: an expert can be removed from a
// run.
struct EnsembleIndex {
  std::string folder;
  std::vector<std::int32_t> indices;  // [K], growing
  std::vector<std::string> classes;
  ModelSpec model;
  bool has_learned_router = false;
  std::optional<LatentScaling>
      latents;  // what it draws are latents, scaled like this; none: pixels
  // [K][classes + 1] training samples of each label, the last those without
  // one.
  std::vector<std::vector<std::int64_t>> label_counts;

  std::size_t experts() const { return label_counts.size(); }
  // One file, or the shards that an index lists.
  Result<std::vector<std::string>> weights_paths(std::size_t expert) const;
  std::string router_folder() const;

  // π(k | label), or π(k) for label −1: normalised, [K]. kInvalid for a label
  // that no expert has seen.
  Result<std::vector<double>> expert_shares(std::int32_t label) const;
};

Result<EnsembleIndex> read_ensemble_index(const std::string& folder);

}  // namespace skerry::diffusion
