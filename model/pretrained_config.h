// SPDX-License-Identifier: Apache-2.0
// What the folder of a public DiT or PixArt says of itself: config.json, and
// the scheduler_config.json of its pipeline.
// ON FAILURE: kNotFound for a missing file, kInvalid for a model that runs do
// not train. The message names the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/spec.h"

namespace skerry {

struct PretrainedConfig {
  ModelSpec model;
  std::uint32_t out_channels = 0;  // twice the channels: with a learned variance
  std::string json;                // config.json of the converted expert
};
// Reads FOLDER/config.json of diffusers' DiTTransformer2DModel,
// PixArtTransformer2DModel, or the older Transformer2DModel of either kind.
Result<PretrainedConfig> read_pretrained_config(const std::string& folder);
// RETURNS: the PixArt that a DiT becomes, for captions of `dim` numbers a
// token.
PretrainedConfig with_captions(const PretrainedConfig& dit, std::uint32_t dim);

// What the weights predict. By the scheduler: as its config says, else a flow.
enum class InitObjective { kByScheduler, kFlow, kEpsilon };
Result<InitObjective> parse_init_objective(std::string_view name);  // auto, flow, epsilon

// The noise of each step of a DDPM. The model predicts that noise, or v
// (Salimans & Ho, arXiv 2202.00512).
struct DdpmSchedule {
  std::vector<double> betas;
};
// RETURNS: the schedule in FOLDER/scheduler_config.json or
// FOLDER/../scheduler/scheduler_config.json; none: it is of a flow, or there is
// no such file.
Result<std::optional<DdpmSchedule>> read_ddpm_schedule(const std::string& folder);
// RETURNS: the schedule of a DDPM; none: the weights predict a flow's velocity.
// Where the folder names no schedule for a DDPM: that of DiT and PixArt, 1,000
// linear steps.
Result<std::optional<DdpmSchedule>> schedule_of(const std::string& folder, InitObjective objective);

}  // namespace skerry
