// SPDX-License-Identifier: Apache-2.0
// What makes an ensemble folder one model for diffusers, beside the experts:
// model_index.json, pipeline.py, scheduler/, and in transformer/ the code that
// joins experts and router. The experts and the router's statistics live in
// transformer/, because diffusers moves, saves and downloads a model by its
// folder; expert_K and router beside it are links to them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "protocol/skerry.pb.h"

namespace skerry::cli {

// transformer/skerry_ensemble.py and pipeline.py.
extern const std::string_view kEnsembleScript, kPipelineScript;

// How the latents of the dataset were scaled for training, as the router's file
// in `ensemble` says; none where it says nothing of it, as of pixels.
struct LatentScaling {
  double scale = 1, shift = 0;
};
std::optional<LatentScaling> latent_scaling(const std::string& ensemble);
// Grey or colour, and not scaled as latents are; any other number of channels
// is latents of an autoencoder.
bool draws_pixels(const std::string& ensemble, const pb::ModelSpec& model);

std::string expert_folder(const std::string& ensemble, std::uint32_t expert);
std::string router_folder(const std::string& ensemble);

// Writes all but experts and router, which are in place already, and links
// these. Where the file system has no symbolic links, they are copied.
Result<void> write_diffusers_files(const std::string& folder, const pb::EnsembleReply& ensemble);

}  // namespace skerry::cli
