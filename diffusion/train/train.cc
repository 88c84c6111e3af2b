// SPDX-License-Identifier: Apache-2.0
#include "diffusion/train/train.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "base/text.h"
#include "diffusion/runtime/autocast.h"
#include "diffusion/runtime/device.h"
#include "diffusion/runtime/speed.h"
#include "diffusion/train/batch_loader.h"
#include "diffusion/train/train_state.h"

namespace skerry::diffusion {
namespace {

// Runs a part of the step under its name, for a PhaseClock or a Trace.
template <class Body>
auto in_phase(Phase phase, const Body& body) {
  RECORD_USER_SCOPE(name_of(phase));
  return body();
}

}  // namespace

struct Trainer::Impl {
  Impl(const ModelSpec& model_spec, const TrainSpec& train_spec, TrainingSet training_set,
       TrainState train_state, torch::Device on)
      : model(model_spec),
        train(train_spec),
        set(std::move(training_set)),
        loader(set, model_spec, train_spec, /*pinned=*/on.is_cuda()),
        state(std::move(train_state)),
        dit(model_spec, state.raw, on, make_kernels(train_spec.kernels, on, model_spec),
            train_spec.gradient_checkpointing),
        device(diffusion::device_name(on)),
        fingerprint(engine_fingerprint(on, dit.kernels().fingerprint(), train_spec)),
        snapshots(snapshot_device(on)) {
    for (at::Tensor& weight : state.raw) weight.set_requires_grad(true);  // shared with `dit`
  }

  StepMetrics step();
  // Half as many samples at a time. False: there is one already.
  bool step_back();
  at::Tensor loss_of(const Batch& batch) const;
  // The mean loss of the step's batch; writes the gradients of it.
  at::Tensor differentiate(std::vector<at::Tensor>& gradients);

  ModelSpec model;
  TrainSpec train;
  TrainingSet set;
  BatchLoader loader;
  TrainState state;
  Dit dit;
  std::string device, fingerprint;
  SnapshotWriter snapshots;
  std::optional<std::string> bad_loss;
};

at::Tensor Trainer::Impl::loss_of(const Batch& batch) const {
  const torch::Device on = dit.device();
  const Autocast autocast(on, train.precision == "bf16");
  const auto there = [&](const at::Tensor& tensor) {
    return tensor.to(tensor.options().device(on), /*non_blocking=*/true);
  };
  if (model.router_experts > 0) {
    return at::cross_entropy_loss(dit.logits(there(batch.x_t), there(batch.t)),
                                  there(batch.partitions));
  }
  const at::Tensor velocity = dit.forward(there(batch.x_t), there(batch.t), there(batch.labels));
  return at::mse_loss(velocity, there(batch.target));
}

// A part counts by its share of the batch. The whole batch at once has no
// share: its numbers are of no sum.
at::Tensor Trainer::Impl::differentiate(std::vector<at::Tensor>& gradients) {
  const std::uint32_t rows = rows_at_a_time(train);
  at::Tensor mean;
  for (std::uint32_t first = 0; first < train.batch_size; first += rows) {
    const std::uint32_t count = std::min(rows, train.batch_size - first);
    const Batch batch =
        in_phase(Phase::kData, [&] { return loader.take(state.step, first, rows); });
    const at::Tensor loss = in_phase(Phase::kForward, [&] {
      const at::Tensor whole = loss_of(batch);
      return count < train.batch_size ? whole * (static_cast<double>(count) / train.batch_size)
                                      : whole;
    });
    in_phase(Phase::kBackward, [&] {
      std::vector<at::Tensor> found = torch::autograd::grad({loss}, state.raw);
      if (first == 0) {
        gradients = std::move(found);
      } else {
        at::_foreach_add_(gradients, found);
      }
    });
    mean = first == 0 ? loss.detach() : mean + loss.detach();
  }
  return mean;
}

bool Trainer::Impl::step_back() {
  const std::uint32_t rows = rows_at_a_time(train);
  if (rows == 1) return false;
  train.micro_batch = (rows + 1) / 2;
  fingerprint = engine_fingerprint(dit.device(), dit.kernels().fingerprint(), train);
  log_warning("out of memory: the batch goes on in smaller parts",
              {{"samples_at_a_time", train.micro_batch}, {"before", rows}, {"step", state.step}});
  return true;
}

StepMetrics Trainer::Impl::step() {
  const std::uint64_t begun = state.step;
  std::vector<at::Tensor> gradients;
  at::Tensor loss;
  StepMetrics metrics;
  metrics.learning_rate = learning_rate_at(train, begun);
  while (state.step == begun) {
    try {
      loss = differentiate(gradients);
      metrics.gradient_norm =
          in_phase(Phase::kOptimiser, [&] { return apply_gradients(state, gradients, train); });
    } catch (const std::exception& error) {
      gradients.clear();
      // Never from half an update.
      if (state.step > begun || !is_out_of_memory(error) || !step_back()) throw;
    }
  }
  metrics.step = state.step;
  metrics.loss = loss.item<double>();
  if (!std::isfinite(metrics.loss) && !bad_loss) bad_loss = text("the loss of step ", state.step);
  return metrics;
}

Trainer::Trainer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;
Trainer::~Trainer() = default;

Result<Trainer> Trainer::make(const ModelSpec& model, const TrainSpec& train,
                              const std::vector<std::string>& shard_paths,
                              const storage::Safetensors* checkpoint, const Progress& progress) {
  TRY(validate(model));
  TRY(validate(train));
  const auto begin = [&](const char* phase) {
    if (progress) progress(phase);
  };
  return guarded([&]() -> Result<Trainer> {
    begin("opening the device");
    ASSIGN_OR_RETURN(const torch::Device device, open_device(train.device, train.threads));
    begin("reading the shards");
    std::vector<std::string> shards;
    std::optional<storage::Safetensors> initial;
    for (const std::string& path : shard_paths) {
      ASSIGN_OR_RETURN(storage::Safetensors file, storage::Safetensors::open(path));
      if (holds_weights(file)) {
        initial = std::move(file);
      } else {
        shards.push_back(path);
      }
    }
    ASSIGN_OR_RETURN(TrainingSet set, TrainingSet::open(shards, model, train.shard_partitions));
    if (initial && train.weight_norm) {
      return fail(
          ErrorCode::kInvalid,
          "weight normalisation with weights to start from: their rows have lengths of their own");
    }
    begin("loading the weights");
    TrainState state;
    if (checkpoint == nullptr && initial) {
      ASSIGN_OR_RETURN(std::vector<at::Tensor> weights, exported_weights(*initial, model));
      state = state_of(std::move(weights), train, device);
    } else if (checkpoint == nullptr) {
      state = initial_state(model, train, device);
    } else {
      ASSIGN_OR_RETURN(state, load_state(*checkpoint, model, train, device));
    }
    if (train.weight_norm) hold_rows(state, model);
    return Trainer(std::make_unique<Impl>(model, train, std::move(set), std::move(state), device));
  });
}

Result<Trainer> Trainer::create(const ModelSpec& model, const TrainSpec& train,
                                const std::vector<std::string>& shard_paths,
                                const Progress& progress) {
  return make(model, train, shard_paths, nullptr, progress);
}

Result<Trainer> Trainer::resume(const ModelSpec& model, const TrainSpec& train,
                                const std::vector<std::string>& shard_paths,
                                const storage::Safetensors& checkpoint, const Progress& progress) {
  return make(model, train, shard_paths, &checkpoint, progress);
}

Result<StepMetrics> Trainer::step() {
  return guarded([&]() -> Result<StepMetrics> { return impl_->step(); });
}

std::uint64_t Trainer::steps_done() const { return impl_->state.step; }

Result<std::optional<std::string>> Trainer::non_finite() {
  std::optional<std::string> found = std::exchange(impl_->bad_loss, std::nullopt);
  if (found) return found;
  return guarded([&]() -> Result<std::optional<std::string>> {
    const at::NoGradGuard no_grad;
    return first_non_finite(impl_->state, impl_->model);
  });
}

void Trainer::wait() const { wait_for(impl_->dit.device()); }

Result<std::uint64_t> Trainer::write_snapshot(int descriptor) const {
  return guarded([&]() -> Result<std::uint64_t> {
    const at::NoGradGuard no_grad;
    return impl_->snapshots.write(
        descriptor, snapshot_tensors(impl_->state, impl_->model),
        snapshot_metadata(impl_->state, impl_->model, impl_->train, impl_->fingerprint));
  });
}

Result<void> Trainer::write_checkpoint(const std::string& path) const {
  return guarded([&]() -> Result<void> {
    const at::NoGradGuard no_grad;
    return write_snapshot_file(
        path, snapshot_tensors(impl_->state, impl_->model),
        snapshot_metadata(impl_->state, impl_->model, impl_->train, impl_->fingerprint),
        {.wait = snapshot_device(impl_->dit.device()).wait, .pin = {}});
  });
}

std::uint64_t Trainer::snapshot_bytes() const {
  const Result<std::uint64_t> bytes = snapshot_image_bytes(
      snapshot_tensors(impl_->state, impl_->model),
      snapshot_metadata(impl_->state, impl_->model, impl_->train, impl_->fingerprint));
  return bytes.value_or(0);
}

std::uint64_t Trainer::parameter_count() const {
  std::uint64_t count = 0;
  for (const at::Tensor& weight : impl_->state.raw)
    count += static_cast<std::uint64_t>(weight.numel());
  return count;
}

std::uint64_t Trainer::sample_count() const { return impl_->set.size(); }
const std::string& Trainer::device_name() const { return impl_->device; }
const std::string& Trainer::fingerprint() const { return impl_->fingerprint; }

}  // namespace skerry::diffusion
