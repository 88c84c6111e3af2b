// SPDX-License-Identifier: Apache-2.0
// The state that training changes: raw weights, AdamW's moments, the EMA and
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

// The length [rows,1] at which a matrix's rows are held, and room for as many
// numbers; undefined: they are free.
struct HeldRows {
  at::Tensor length, factor;
};

struct TrainState {
  std::vector<at::Tensor> raw, ema, m, v;  // in the order of parameter_shapes, all on one device
  std::uint64_t step = 0;
  std::vector<HeldRows> held;       // of each weight, under weight normalisation
  std::optional<LeanScratch> lean;  // set in the lean form, in which all but `raw` is bf16
};

// RETURNS: the state at step 0 of these weights, which are on the host.
TrainState state_of(std::vector<at::Tensor> weights, const TrainSpec& train, torch::Device device);
TrainState initial_state(const ModelSpec& model, const TrainSpec& train, torch::Device device);
// Loads the state in the form that `train` names, from a checkpoint of either
// form. Conversion to lean rounds each number to the nearest, once.
Result<TrainState> load_state(const storage::Safetensors& checkpoint, const ModelSpec& model,
                              const TrainSpec& train, torch::Device device);

// RETURNS: the shape that a snapshot's metadata names.
// ON FAILURE: kCorrupt if it names none.
Result<ModelSpec> model_of(const std::map<std::string, std::string>& metadata);

// RETURNS: the tensors of a snapshot, in the order ema, raw, m, v; raw comes
// first if the rest is bf16. They read `state` when they are copied, on a card
// after all work queued before.
std::vector<SnapshotTensor> snapshot_tensors(const TrainState& state, const ModelSpec& model);
std::map<std::string, std::string> snapshot_metadata(const TrainState& state,
                                                     const ModelSpec& model, const TrainSpec& train,
                                                     const std::string& fingerprint);

// RETURNS: the first tensor with a value that is not finite, if any.
std::optional<std::string> first_non_finite(const TrainState& state, const ModelSpec& model);

// From now on, every update brings the rows that held_lengths() names to those
// lengths.
void hold_rows(TrainState& state, const ModelSpec& model);

// Applies one update from the gradients of `raw`: clipping, AdamW (betas .9
// .999, eps 1e-8), held rows back to their length, EMA, step + 1.
// RETURNS: the norm of the gradients before clipping.
// ON FAILURE: it throws. It allocates all memory before it changes anything, so
// an exception for lack of memory leaves state and step unchanged. A later
// exception finds the step counted.
double apply_gradients(TrainState& state, std::vector<at::Tensor>& gradients,
                       const TrainSpec& train);

}  // namespace skerry::diffusion
