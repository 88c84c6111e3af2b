// SPDX-License-Identifier: Apache-2.0
// Builds the folder of `ensemble fetch`: experts in diffusers' form, the
// router's statistics, the combined model's code, a model card, an index and
// checksums.
//
// The folder is built as DIR.partial and renamed when it is complete. An
// interrupted fetch leaves DIR.partial, and the next fetch resumes it.
#pragma once

#include <string>
#include <vector>

#include "base/progress.h"
#include "base/result.h"
#include "cli/connect/admin_client.h"

namespace skerry::cli {

// Checks an ensemble before anything is fetched.
// ON FAILURE: kConflict if `folder` exists or an expert has no checkpoint yet;
// kCorrupt if the coordinator's reply contradicts itself.
Result<void> check_ensemble(const pb::EnsembleReply& ensemble, const std::string& folder);

// RETURNS: the content of `ensemble.json`.
std::string ensemble_index(const pb::EnsembleReply& ensemble);

bool is_laggard(const pb::EnsembleExpert& expert);
// RETURNS: the experts that are behind the target.
std::vector<std::uint32_t> laggards(const pb::EnsembleReply& ensemble);

// Optional content beside the averaged weights; quadruples the bytes to fetch.
struct Extras {
  // expert_K/diffusion_pytorch_model.raw.safetensors, diffusers' variant "raw".
  bool raw_weights = false;
  bool training_state = false;  // expert_K/training_state.safetensors: raw weights and moments
  bool any() const { return raw_weights || training_state; }
};

// Fetches into FOLDER.partial, assembles the ensemble, and renames the folder.
// `kept`: a folder that keeps the fetched data for a later fetch with the same
// extras. If empty, the data is deleted with FOLDER.partial.
// ON FAILURE: kUnavailable if the run may have dropped one of these
// checkpoints; request the ensemble again.
Result<void> fetch_ensemble(const pb::EnsembleReply& ensemble, const std::string& folder,
                            const Extras& extras, ObjectSource& source, Terminal& terminal,
                            const std::string& kept = "");

}  // namespace skerry::cli
