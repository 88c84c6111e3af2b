// SPDX-License-Identifier: Apache-2.0
// The index of an ensemble folder, without LibTorch: ensemble.json, the label
// counts of its partitions, and whether it draws latents.
// ON FAILURE: kNotFound for a missing file, kCorrupt for one that contradicts
// itself; the message names the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "diffusion/formats/latents.h"
#include "model/spec.h"

namespace skerry::diffusion {

// Here experts count from 0, by their place in the folder. `indices` has their
// numbers in the run, which also name their partitions and folders. Some may be
// missing: an expert can be removed from a run.
struct EnsembleIndex {
  std::string folder;
  std::vector<std::int32_t> indices;  // [K], ascending
  std::vector<std::string> classes;
  ModelSpec model;
  bool has_learned_router = false;
  // the scaling of the latents that it draws; none: pixels
  std::optional<LatentScaling> latents;
  // [K][classes + 1] training samples of each label; the last: without one.
  std::vector<std::vector<std::int64_t>> label_counts;

  std::size_t experts() const { return label_counts.size(); }
  // One file, or the shards that an index lists.
  Result<std::vector<std::string>> weights_paths(std::size_t expert) const;
  std::string router_folder() const;

  // RETURNS: π(k | label), or π(k) for label −1: normalised, [K].
  // ON FAILURE: kInvalid for a label that no expert has seen.
  Result<std::vector<double>> expert_shares(std::int32_t label) const;
};

// RETURNS: the files of an expert's weights in its folder: one, or the shards
// that an index lists.
Result<std::vector<std::string>> weights_files(const std::string& folder);

Result<EnsembleIndex> read_ensemble_index(const std::string& folder);

}  // namespace skerry::diffusion
