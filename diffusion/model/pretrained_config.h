// SPDX-License-Identifier: Apache-2.0
// What the folder of a public DiT or PixArt says of itself: config.json, and
// the scheduler_config.json of its pipeline. Does not include LibTorch.
// ON FAILURE: kNotFound for a missing file, kInvalid for a model that runs do
// not train. The message names the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/spec.h"

namespace skerry::diffusion {

struct PretrainedConfig {
  ModelSpec model;
  std::uint32_t out_channels = 0;  // twice the channels: with a learned variance
  std::string json;                // config.json of the converted expert
};
// Reads FOLDER/config.json of diffusers' DiTTransformer2DModel,
// PixArtTransformer2DModel, or the older Transformer2DModel of either kind.
Result<PretrainedConfig> read_pretrained_config(const std::string& folder);

// The noise of each step of a DDPM. The model predicts that noise, or v
// (Salimans & Ho, arXiv 2202.00512).
struct DdpmSchedule {
  std::vector<double> betas;
};
// RETURNS: the schedule in FOLDER/scheduler_config.json or
// FOLDER/../scheduler/scheduler_config.json; none: it is of a flow, or there is
// no such file.
Result<std::optional<DdpmSchedule>> read_ddpm_schedule(const std::string& folder);
// The schedule that DiT and PixArt were trained with: 1,000 linear steps.
DdpmSchedule linear_schedule();

}  // namespace skerry::diffusion
