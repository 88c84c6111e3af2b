// SPDX-License-Identifier: Apache-2.0
#include "diffusion/train/train.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <cmath>
#include <deque>

#include "base/log.h"
#include "base/text.h"
#include "diffusion/model/dit.h"
#include "diffusion/runtime/autocast.h"
#include "diffusion/runtime/device.h"
#include "diffusion/runtime/speed.h"
#include "diffusion/train/batch_loader.h"
#include "diffusion/train/late_numbers.h"
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

// The whole model on one card, and every ranks-th part of each batch. Replicas
// on the CPU share the weights that they do not round.
struct Replica {
  std::unique_ptr<Denoiser> model;
  BatchLoader loader;
  std::vector<at::Tensor> gradients;  // of its last part
  at::Tensor loss;                    // of the same, by its share of the batch
};

// Gradients of rounded weights as those of the weights.
std::vector<at::Tensor> widened(std::vector<at::Tensor> gradients) {
  std::vector<at::Tensor> from, to;
  for (at::Tensor& each : gradients) {
    if (each.scalar_type() == at::kFloat) continue;
    from.push_back(each);
    to.push_back(each = at::empty_like(each, each.options().dtype(at::kFloat)));
  }
  if (!to.empty()) at::_foreach_copy_(to, from);
  return gradients;
}

struct Trainer::Impl {
  Impl(const ModelSpec& model_spec, const TrainSpec& train_spec, TrainingSet training_set,
       TrainState train_state, const Devices& devices)
      : model(model_spec),
        train(train_spec),
        set(std::move(training_set)),
        state(std::move(train_state)),
        ranks(devices.size()),
        device(diffusion::device_name(devices[0])),
        snapshots({.wait = [this] { wait(); }, .pin = snapshot_device(devices[0]).pin}) {
    for (std::size_t rank = 0; rank < devices.size(); ++rank) {
      const torch::Device on = devices[rank];
      replicas.push_back(
          {.model = make_denoiser(
               model, replica_weights(state.raw, model, on, train.precision == "bf16"), on,
               make_kernels(train.kernels, on, model), train.gradient_checkpointing),
           .loader = {set, model, train, /*pinned=*/!on.is_cpu(), static_cast<std::uint32_t>(rank),
                      static_cast<std::uint32_t>(devices.size())},
           .gradients = {},
           .loss = {}});
    }
    say_fingerprint();
  }

  void advance();
  struct Step;
  // Its metrics, once the device has computed them.
  StepMetrics read(const Step& step);
  // Half as many samples at a time. False: there is one already.
  bool step_back();
  void say_fingerprint();
  at::Tensor loss_of(const Denoiser& denoiser, const Batch& batch) const;
  void differentiate_part(Replica& replica, std::uint32_t first, std::uint32_t rows);
  // The mean loss of the step's batch; writes the gradients of it.
  at::Tensor differentiate(std::vector<at::Tensor>& gradients);
  // Every replica gets the weights that others have updated.
  void spread_weights();
  void wait() const {
    for (const Replica& replica : replicas) wait_for(replica.model->device());
  }

  ModelSpec model;
  TrainSpec train;
  TrainingSet set;
  TrainState state;
  std::deque<Replica> replicas;  // by rank
  Ranks ranks;
  std::string device, fingerprint;
  SnapshotWriter snapshots;
  // The last step, until its metrics are returned.
  struct Step {
    StepMetrics metrics;  // without loss and norm
    LateNumbers loss_and_norm;
  };
  std::optional<Step> last;
  std::optional<std::string> bad_loss;
};

at::Tensor Trainer::Impl::loss_of(const Denoiser& denoiser, const Batch& batch) const {
  const torch::Device on = denoiser.device();
  const Autocast autocast(on, train.precision == "bf16");
  const auto there = [&](const at::Tensor& tensor) {
    return tensor.to(tensor.options().device(on), /*non_blocking=*/true);
  };
  if (model.router_experts > 0) {
    const Dit& router = static_cast<const Dit&>(denoiser);
    return at::cross_entropy_loss(router.logits(there(batch.x_t), there(batch.t)),
                                  there(batch.partitions));
  }
  Condition condition;
  if (model.is_pixart()) {
    condition.captions = there(batch.captions);
    condition.mask = there(batch.mask);
  } else {
    condition.labels = there(batch.labels);
  }
  const at::Tensor velocity = denoiser.forward(there(batch.x_t), there(batch.t), condition);
  return at::mse_loss(velocity, there(batch.target));
}

// A part counts by its share of the batch. The whole batch at once has no
// share: its numbers are of no sum.
void Trainer::Impl::differentiate_part(Replica& replica, std::uint32_t first, std::uint32_t rows) {
  const std::uint32_t count = std::min(rows, train.batch_size - first);
  const Batch batch =
      in_phase(Phase::kData, [&] { return replica.loader.take(state.step, first, rows); });
  replica.loss = in_phase(Phase::kForward, [&] {
    const at::Tensor whole = loss_of(*replica.model, batch);
    return count < train.batch_size ? whole * (static_cast<double>(count) / train.batch_size)
                                    : whole;
  });
  in_phase(Phase::kBackward, [&] {
    replica.gradients = torch::autograd::grad({replica.loss}, replica.model->weights());
  });
}

// The replicas take turns at the parts of the batch. Each rank adds its slice
// of their gradients in the order of the parts. So the number of ranks changes
// no bit.
at::Tensor Trainer::Impl::differentiate(std::vector<at::Tensor>& gradients) {
  const std::uint32_t rows = rows_at_a_time(train);
  gradients.resize(state.raw.size());
  at::Tensor mean;
  for (std::uint32_t first = 0; first < train.batch_size;) {
    const std::uint32_t parts = std::min<std::uint32_t>(
        static_cast<std::uint32_t>(ranks.count()), (train.batch_size - first + rows - 1) / rows);
    ranks.run([&](std::size_t rank) {
      if (rank >= parts) return;
      const c10::DeviceGuard guard(replicas[rank].model->device());
      differentiate_part(replicas[rank], first + static_cast<std::uint32_t>(rank) * rows, rows);
    });
    ranks.run([&](std::size_t rank) {
      const at::NoGradGuard no_grad;
      const StateSlice& slice = state.slices[rank];
      if (slice.first == slice.last) return;
      const c10::DeviceGuard guard(slice.device);
      for (std::uint32_t part = 0; part < parts; ++part) {
        std::vector<at::Tensor> found = slice.of(replicas[part].gradients);
        for (at::Tensor& each : found) each = each.to(slice.device);
        found = widened(std::move(found));
        if (first == 0 && part == 0) {
          std::ranges::move(found, gradients.begin() + static_cast<std::ptrdiff_t>(slice.first));
        } else {
          at::_foreach_add_(slice.of(gradients), found);
        }
      }
    });
    for (std::uint32_t part = 0; part < parts; ++part) {
      Replica& replica = replicas[part];
      const at::Tensor loss = replica.loss.detach().to(replicas[0].model->device());
      mean = mean.defined() ? mean + loss : loss;
      replica.gradients.clear();
      replica.loss.reset();
    }
    first += parts * rows;
  }
  return mean;
}

void Trainer::Impl::spread_weights() {
  ranks.run([&](std::size_t rank) {
    const at::NoGradGuard no_grad;
    Replica& replica = replicas[rank];
    const c10::DeviceGuard guard(replica.model->device());
    std::vector<at::Tensor> from, to;
    for (std::size_t i = 0; i < state.raw.size(); ++i) {
      at::Tensor& weight = replica.model->weights()[i];
      if (weight.is_same(state.raw[i])) continue;
      from.push_back(state.raw[i]);
      to.push_back(weight);
    }
    if (!to.empty()) at::_foreach_copy_(to, from, /*non_blocking=*/true);
  });
}

void Trainer::Impl::say_fingerprint() {
  const Denoiser& denoiser = *replicas[0].model;
  fingerprint = engine_fingerprint(denoiser.device(), denoiser.kernels().fingerprint(), train);
}

bool Trainer::Impl::step_back() {
  const std::uint32_t rows = rows_at_a_time(train);
  if (rows == 1) return false;
  train.micro_batch = (rows + 1) / 2;
  say_fingerprint();
  log_warning("out of memory: the batch goes on in smaller parts",
              {{"samples_at_a_time", train.micro_batch}, {"before", rows}, {"step", state.step}});
  return true;
}

void Trainer::Impl::advance() {
  const std::uint64_t begun = state.step;
  std::vector<at::Tensor> gradients;
  at::Tensor loss, norm;
  StepMetrics metrics;
  metrics.learning_rate = learning_rate_at(train, begun);
  while (state.step == begun) {
    try {
      loss = differentiate(gradients);
      norm = in_phase(Phase::kOptimiser,
                      [&] { return apply_gradients(state, gradients, train, ranks); });
    } catch (const std::exception& error) {
      gradients.clear();
      for (Replica& replica : replicas) {
        replica.gradients.clear();
        replica.loss.reset();  // which holds the activations of a failed backward pass
      }
      // Never from half an update.
      if (state.step > begun || !is_out_of_memory(error) || !step_back()) throw;
    }
  }
  spread_weights();
  metrics.step = state.step;
  last.emplace(Step{metrics, LateNumbers(at::stack({loss, norm}))});
}

StepMetrics Trainer::Impl::read(const Step& step) {
  StepMetrics metrics = step.metrics;
  const at::Tensor& numbers = step.loss_and_norm.read();
  metrics.loss = numbers[0].item<double>();
  metrics.gradient_norm = numbers[1].item<double>();
  if (!std::isfinite(metrics.loss) && !bad_loss) bad_loss = text("the loss of step ", metrics.step);
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
    Devices devices;
    for (std::uint32_t rank = 0; rank < train.cards; ++rank) {
      const int index = train.device < 0 ? -1 : train.device + static_cast<int>(rank);
      ASSIGN_OR_RETURN(const torch::Device device, open_device(index, train.threads));
      devices.push_back(device);
    }
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
      state = state_of(std::move(weights), train, devices);
    } else if (checkpoint == nullptr) {
      state = initial_state(model, train, devices);
    } else {
      ASSIGN_OR_RETURN(state, load_state(*checkpoint, model, train, devices));
    }
    if (train.weight_norm) hold_rows(state, model);
    TrainSpec parted = train;
    if (train.cards > 1) {
      const std::uint32_t share = (train.batch_size + train.cards - 1) / train.cards;
      parted.micro_batch = std::min(rows_at_a_time(train), share);
    }
    return Trainer(
        std::make_unique<Impl>(model, parted, std::move(set), std::move(state), devices));
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
  return guarded([&]() -> Result<StepMetrics> {
    impl_->advance();
    return impl_->read(*std::exchange(impl_->last, std::nullopt));
  });
}

// The step before is read when this one is queued, so that the card has work.
Result<std::optional<StepMetrics>> Trainer::advance() {
  return guarded([&]() -> Result<std::optional<StepMetrics>> {
    const std::optional<Impl::Step> before = std::exchange(impl_->last, std::nullopt);
    impl_->advance();
    return before ? std::optional(impl_->read(*before)) : std::nullopt;
  });
}

Result<std::optional<StepMetrics>> Trainer::settle() {
  return guarded([&]() -> Result<std::optional<StepMetrics>> {
    const std::optional<Impl::Step> last = std::exchange(impl_->last, std::nullopt);
    return last ? std::optional(impl_->read(*last)) : std::nullopt;
  });
}

std::uint64_t Trainer::steps_done() const { return impl_->state.step; }

Result<std::optional<std::string>> Trainer::non_finite() {
  return guarded([&]() -> Result<std::optional<std::string>> {
    if (impl_->last) (void)impl_->read(*impl_->last);
    std::optional<std::string> found = std::exchange(impl_->bad_loss, std::nullopt);
    if (found) return found;
    const at::NoGradGuard no_grad;
    return first_non_finite(impl_->state, impl_->model);
  });
}

void Trainer::wait() const { impl_->wait(); }

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
        {.wait = [this] { wait(); }, .pin = {}});
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
