// SPDX-License-Identifier: Apache-2.0
// The state that training changes: raw weights, AdamW's moments, the EMA and
// the step. Of several cards each holds and updates a slice of it (Rajbhandari
// et al., ZeRO, arXiv 1910.02054, stage 1). Includes LibTorch: for this folder
// only.
#pragma once

#include <torch/torch.h>

#include <optional>
#include <string>
#include <vector>

#include "diffusion/model/weights.h"
#include "diffusion/train/lean.h"
#include "diffusion/train/ranks.h"
#include "diffusion/train/snapshot.h"

namespace skerry::diffusion {

// The length [rows,1] at which a matrix's rows are held, and room for as many
// numbers; undefined: they are free.
struct HeldRows {
  at::Tensor length, factor;
};

// Tensors [first, last) of a state, which one rank holds and updates.
struct StateSlice {
  std::size_t first = 0, last = 0;
  torch::Device device;
  std::optional<LeanScratch> lean;  // set in the lean form

  std::vector<at::Tensor> of(const std::vector<at::Tensor>& all) const {
    return {all.begin() + static_cast<std::ptrdiff_t>(first),
            all.begin() + static_cast<std::ptrdiff_t>(last)};
  }
};

struct TrainState {
  // In the order of parameter_shapes, each on the device of its slice. In the
  // lean form all but `raw` is bf16.
  std::vector<at::Tensor> raw, ema, m, v;
  std::uint64_t step = 0;
  std::vector<HeldRows> held;      // of each weight, under weight normalisation
  std::vector<StateSlice> slices;  // by rank

  bool is_lean() const { return slices.front().lean.has_value(); }
};

using Devices = std::vector<torch::Device>;  // by rank, at least one

// RETURNS: these tensors on a device. On a card they lie in one buffer, with
// matrices before vectors. So query, key and value follow each other, and one
// product takes all three without a copy.
std::vector<at::Tensor> laid_out(const std::vector<at::Tensor>& tensors, torch::Device device,
                                 at::ScalarType type);

// RETURNS: what a replica on `device` trains: the state's own weights, or
// copies of those that are elsewhere. With `bf16` the matrices of linear layers
// are copies, too, rounded once a step where autocast would round each when it
// is used.
std::vector<at::Tensor> replica_weights(const std::vector<at::Tensor>& raw, const ModelSpec& model,
                                        torch::Device device, bool bf16);

// RETURNS: the state at step 0 of these weights, which are on the host.
TrainState state_of(std::vector<at::Tensor> weights, const TrainSpec& train,
                    const Devices& devices);
TrainState initial_state(const ModelSpec& model, const TrainSpec& train, const Devices& devices);
// Loads the state in the form that `train` names, from a checkpoint of either
// form. Conversion to lean rounds each number to the nearest, once.
Result<TrainState> load_state(const storage::Safetensors& checkpoint, const ModelSpec& model,
                              const TrainSpec& train, const Devices& devices);

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
// .999, eps 1e-8), held rows back to their length, EMA, step + 1. A gradient is
// on the device of its weight. Each rank updates its slice; the number of ranks
// changes no bit.
// REQUIRES: as many ranks as slices.
// RETURNS: the norm [] of the gradients before clipping, on the first device.
// ON FAILURE: it throws. It allocates all memory before it changes anything, so
// an exception for lack of memory leaves state and step unchanged. A later
// exception finds the step counted.
at::Tensor apply_gradients(TrainState& state, std::vector<at::Tensor>& gradients,
                           const TrainSpec& train, Ranks& ranks);

}  // namespace skerry::diffusion
