// Everything that training changes: raw weights, AdamW's moments, the EMA and the step. Includes LibTorch:
// for this folder only.
#pragma once

#include <torch/torch.h>

#include <optional>
#include <string>
#include <vector>

#include "diffusion/model.h"
#include "diffusion/snapshot.h"

namespace skerry::diffusion {

struct TrainState {
  std::vector<at::Tensor> raw, ema, m, v;  // in the order of parameter_shapes, all on one device
  std::uint64_t step = 0;
};

// The state at step 0 of these weights, which are on the host.
TrainState state_of(std::vector<at::Tensor> weights, torch::Device device);
TrainState initial_state(const ModelSpec& model, const TrainSpec& train, torch::Device device);
Result<TrainState> load_state(const storage::Safetensors& checkpoint, const ModelSpec& model,
                              const TrainSpec& train, torch::Device device);

// The shape that a snapshot's metadata names. kCorrupt where it names none.
Result<ModelSpec> model_of(const std::map<std::string, std::string>& metadata);

// The tensors of a snapshot, in the order ema, raw, m, v; they read `state` when they are copied.
std::vector<SnapshotTensor> snapshot_tensors(const TrainState& state, const ModelSpec& model);
std::map<std::string, std::string> snapshot_metadata(const TrainState& state, const ModelSpec& model,
                                                     const TrainSpec& train, const std::string& fingerprint);

// The first tensor that holds a value that is not finite, if any.
std::optional<std::string> first_non_finite(const TrainState& state, const ModelSpec& model);

// One update from the gradients of `raw`: clipping, AdamW (betas .9 .999, eps 1e-8), EMA, step + 1. Returns
// the norm of the gradients before clipping.
double apply_gradients(TrainState& state, std::vector<at::Tensor>& gradients, const TrainSpec& train);

}  // namespace skerry::diffusion
