// SPDX-License-Identifier: Apache-2.0
// The folder that `ensemble fetch` makes: experts in diffusers' form, the
// router's statistics, what joins them to one model, a model card, an index and
// sums.
// It is built as DIR.partial, which an interrupted fetch leaves for the next
// one, and gets its name when it is whole.
#pragma once

#include <string>
#include <vector>

#include "base/progress.h"
#include "base/result.h"
#include "cli/connect/admin_client.h"

namespace skerry::cli {

// Fails before anything is fetched: kConflict where `folder` exists or an
// expert has no checkpoint yet, kCorrupt where the coordinator's answer
// contradicts itself.
Result<void> check_ensemble(const pb::EnsembleReply& ensemble, const std::string& folder);

// What `ensemble.json` says.
std::string ensemble_index(const pb::EnsembleReply& ensemble);

bool is_laggard(const pb::EnsembleExpert& expert);
// Experts that are behind the target.
std::vector<std::uint32_t> laggards(const pb::EnsembleReply& ensemble);

// What may come beside the averaged weights, at four times the bytes to fetch.
struct Extras {
  bool raw_weights =
      false;  // expert_K/diffusion_pytorch_model.raw.safetensors, diffusers' variant "raw"
  bool training_state = false;  // expert_K/training_state.safetensors: raw weights and moments
  bool any() const { return raw_weights || training_state; }
};

// Fetches into FOLDER.partial, assembles, renames. kUnavailable: the run may
// have gone on and dropped one of these checkpoints: ask for the ensemble anew.
// What came lies in the folder `kept` and stays there, and a later fetch with
// the same extras asks for nothing that it finds there; empty: what came goes
// with FOLDER.partial.
Result<void> fetch_ensemble(const pb::EnsembleReply& ensemble, const std::string& folder,
                            const Extras& extras, ObjectSource& source, Terminal& terminal,
                            const std::string& kept = "");

}  // namespace skerry::cli
