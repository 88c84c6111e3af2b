// SPDX-License-Identifier: Apache-2.0
// Writes the files that make an ensemble folder a single diffusers model:
// model_index.json, pipeline.py, scheduler/, and in transformer/ the code that
// combines experts and router. The experts and the router's statistics are in
// transformer/ too, since diffusers moves, saves and downloads whole folders.
// expert_K and router are links to them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "protocol/skerry.pb.h"

namespace skerry::cli {

// transformer/skerry_ensemble.py and pipeline.py.
extern const std::string_view kEnsembleScript, kPipelineScript;

// How the latents of the dataset were scaled for training.
struct LatentScaling {
  double scale = 1, shift = 0;
};
// RETURNS: the scaling in the router's file of `ensemble`; none if the file
// names none, as for pixels.
std::optional<LatentScaling> latent_scaling(const std::string& ensemble);
// Whether the model draws pixels: it has 1 or 3 channels and no latent scaling.
// Otherwise it draws latents of an autoencoder.
bool draws_pixels(const std::string& ensemble, const pb::ModelSpec& model);

std::string expert_folder(const std::string& ensemble, std::uint32_t expert);
std::string router_folder(const std::string& ensemble);

// Writes all files but those of experts and router, and links these. Copies
// them if the file system has no symbolic links.
// REQUIRES: experts and router are in place.
Result<void> write_diffusers_files(const std::string& folder, const pb::EnsembleReply& ensemble);

}  // namespace skerry::cli
