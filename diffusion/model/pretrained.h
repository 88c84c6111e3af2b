// SPDX-License-Identifier: Apache-2.0
// Converts the weights of a public DiT or PixArt to an expert that a run starts
// from. Does not include LibTorch.
// THREADS: one at a time.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "model/spec.h"

namespace skerry::diffusion {

// What the weights predict. By the scheduler: as its config says, else a flow.
enum class InitObjective { kByScheduler, kFlow, kEpsilon };
Result<InitObjective> parse_init_objective(std::string_view name);  // auto, flow, epsilon

struct Converted {
  ModelSpec model;
  bool was_ddpm = false;      // it predicted noise, or the v of DDPM
  bool had_variance = false;  // it also predicted a variance, which is left out
};

// Reads FOLDER, with config.json and diffusion_pytorch_model.safetensors or its
// shards, of F32, F16 or BF16. Writes OUTPUT/config.json and
// OUTPUT/diffusion_pytorch_model.safetensors in F32.
//
// A model of DDPM keeps its weights, but for the last layer of the time
// embedder. That layer is fitted anew by least squares. Then a flow's t is
// embedded as the DDPM step with the same ratio of noise to signal was.
// ON FAILURE: kInvalid or kCorrupt names the file, and the tensor that is
// missing or of another shape; OUTPUT then holds no weights.
Result<Converted> convert_pretrained(const std::string& folder, const std::string& output,
                                     InitObjective objective);

}  // namespace skerry::diffusion
