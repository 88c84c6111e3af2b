// SPDX-License-Identifier: Apache-2.0
// Converts the weights of a public DiT or PixArt to an expert that a run starts
// from. Does not include LibTorch.
// THREADS: one at a time.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "model/pretrained_config.h"
#include "model/spec.h"

namespace skerry::diffusion {

struct Converted {
  ModelSpec model;
  bool was_ddpm = false;      // it predicted noise, or the v of DDPM
  bool had_variance = false;  // it also predicted a variance, which is left out
};

// Reads FOLDER, with config.json and diffusion_pytorch_model.safetensors or its
// shards, of F32, F16 or BF16. Writes OUTPUT/config.json,
// OUTPUT/scheduler_config.json of a flow, and
// OUTPUT/diffusion_pytorch_model.safetensors in F32.
//
// A model of DDPM keeps its weights, but for the last layer of the time
// embedder. That layer is fitted anew by least squares. Then a flow's t is
// embedded as the DDPM step with the same ratio of noise to signal was.
// With `caption_dim` a DiT becomes a PixArt that reads captions of so many
// numbers a token (dit_to_pixart.h); 0: it stays what it is.
// ON FAILURE: kInvalid or kCorrupt names the file and the tensor that differs;
// kInvalid too for a PixArt of another `caption_dim`. OUTPUT then holds no
// weights.
Result<Converted> convert_pretrained(const std::string& folder, const std::string& output,
                                     InitObjective objective, std::uint32_t caption_dim = 0);

}  // namespace skerry::diffusion
