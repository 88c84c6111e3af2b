// SPDX-License-Identifier: Apache-2.0
// Everything that training changes: raw weights, AdamW's moments, the EMA and
// the step. Includes LibTorch: for this folder only.
#pragma once

#include <torch/torch.h>

#include <optional>
#include <string>
#include <vector>

#include "diffusion/model/model.h"
#include "diffusion/train/lean.h"
#include "diffusion/train/snapshot.h"

namespace skerry::diffusion {

// The length [rows,1] that a matrix's rows are held at, and room for as many
// numbers; undefined: they are free.
struct HeldRows {
  at::Tensor length, factor;
};

struct TrainState {
  std::vector<at::Tensor> raw, ema, m, v;  // in the order of parameter_shapes, all on one device
  std::uint64_t step = 0;
  std::vector<HeldRows> held;       // of each weight, under weight normalisation
  std::optional<LeanScratch> lean;  // of the lean form, in which all but `raw` is bf16
};

// The state at step 0 of these weights, which are on the host.
TrainState state_of(std::vector<at::Tensor> weights, const TrainSpec& train, torch::Device device);
TrainState initial_state(const ModelSpec& model, const TrainSpec& train, torch::Device device);
// In the form that `train` names, whichever the checkpoint has: to lean each
// number is rounded to the nearest once.
Result<TrainState> load_state(const storage::Safetensors& checkpoint, const ModelSpec& model,
                              const TrainSpec& train, torch::Device device);

// The shape that a snapshot's metadata names. kCorrupt where it names none.
Result<ModelSpec> model_of(const std::map<std::string, std::string>& metadata);

// The tensors of a snapshot, in the order ema, raw, m, v, or raw first where
// the rest is bf16; they read `state` when they are copied, on a card behind
// what was queued before.
std::vector<SnapshotTensor> snapshot_tensors(const TrainState& state, const ModelSpec& model);
std::map<std::string, std::string> snapshot_metadata(const TrainState& state,
                                                     const ModelSpec& model, const TrainSpec& train,
                                                     const std::string& fingerprint);

// The first tensor that holds a value that is not finite, if any.
std::optional<std::string> first_non_finite(const TrainState& state, const ModelSpec& model);

// From now on the rows that held_lengths() names are brought to those lengths
// after every update.
void hold_rows(TrainState& state, const ModelSpec& model);

// One update from the gradients of `raw`: clipping, AdamW (betas .9 .999, eps
// 1e-8), rows that are held back to their length, EMA, step + 1. Returns the
// norm of the gradients before clipping. All memory is taken before anything
// changes: what throws for want of it leaves the state, its step with it, as it
// was; an error that comes later finds the step counted.
double apply_gradients(TrainState& state, std::vector<at::Tensor>& gradients,
                       const TrainSpec& train);

}  // namespace skerry::diffusion
