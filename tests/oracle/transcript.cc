// SPDX-License-Identifier: Apache-2.0
// Writes the engine's first training steps as safetensors, which oracle.py
// recomputes. Files: DIR/start.safetensors (initial weights),
// DIR/batch-<s>.safetensors (the input of step s), DIR/after-<s>.safetensors
// (the snapshot after it).
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/random.h"
#include "base/text.h"
#include "diffusion/train/train.h"
#include "diffusion/train/train_batch.h"
#include "diffusion/train/train_state.h"

namespace {

using namespace skerry;
using namespace skerry::diffusion;

constexpr std::uint64_t kSteps = 3;
constexpr std::uint32_t kSamples = 40;

ModelSpec model_spec() {
  return {.image_size = 12,
          .channels = 2,
          .patch_size = 3,
          .width = 32,
          .depth = 2,
          .heads = 4,
          .classes = 5};
}

TrainSpec train_spec() {
  TrainSpec train;
  train.seed = 11;
  train.expert = 1;
  train.steps = kSteps;
  train.batch_size = 16;
  train.learning_rate = 3e-3;
  train.schedule = Schedule::kCosine;
  train.warmup_steps = 2;
  train.clip = 0.5;
  train.weight_decay = 0.01;
  train.label_dropout = 0.3;
  train.device = -1;
  return train;
}

template <class T>
T must(Result<T> result) {
  if (result) return std::move(*result);
  std::fprintf(stderr, "training-transcript: %s\n", result.error().message.c_str());
  std::exit(1);
}
void must(const Result<void>& result) {
  if (result) return;
  std::fprintf(stderr, "training-transcript: %s\n", result.error().message.c_str());
  std::exit(1);
}

storage::TensorView view_of(const std::string& name, const at::Tensor& tensor) {
  const auto type = tensor.scalar_type() == at::kLong ? storage::DType::kI64 : storage::DType::kF32;
  return {name,
          type,
          {tensor.sizes().begin(), tensor.sizes().end()},
          {static_cast<const char*>(tensor.data_ptr()), tensor.nbytes()}};
}

std::string write_shard(const std::string& path) {
  const ModelSpec model = model_spec();
  Stream stream({.seed = 1, .purpose = Purpose::kSimulation});
  std::string images(kSamples * model.pixels(), '\0');
  for (char& pixel : images) pixel = static_cast<char>(stream.below(256));
  auto labels = at::arange(kSamples, at::kInt) % static_cast<std::int64_t>(model.classes);
  const std::string_view label_bytes(static_cast<const char*>(labels.data_ptr()), labels.nbytes());
  must(storage::write_safetensors(path,
                                  {{"images",
                                    storage::DType::kU8,
                                    {kSamples, model.channels, model.image_size, model.image_size},
                                    images},
                                   {"labels", storage::DType::kI32, {kSamples}, label_bytes}},
                                  {}));
  return path;
}

void write_batch(const std::string& path, const TrainingSet& set, std::uint64_t step) {
  const TrainSpec train = train_spec();
  SampleOrder order(train, set.size());
  const Batch batch = make_batch(set, order, model_spec(), train, step, 0, train.batch_size);
  must(
      storage::write_safetensors(path,
                                 {view_of("x_t", batch.x_t), view_of("t", batch.t),
                                  view_of("labels", batch.labels), view_of("target", batch.target)},
                                 {{"learning_rate", std::to_string(learning_rate_at(train, step))},
                                  {"ema_decay", std::to_string(ema_decay_at(train, step))}}));
}

// The engine's initial weights shut every gate, which hides the layers behind
// it. So a fixed pattern opens the gates of the transcript's weights.
std::string write_start(const std::string& folder, const std::string& shard) {
  const std::string path = folder + "/start.safetensors";
  Trainer trainer = must(Trainer::create(model_spec(), train_spec(), {shard}));
  must(trainer.write_checkpoint(path));
  const auto file = must(storage::Safetensors::open(path));
  TrainState state = must(load_state(file, model_spec(), train_spec(), {torch::kCPU}));
  for (std::size_t i = 0; i < state.raw.size(); ++i) {
    auto ramp = at::sin(at::arange(state.raw[i].numel(), at::kFloat) *
                        (0.7 + 0.01 * static_cast<double>(i)));
    state.raw[i].add_(ramp.view(state.raw[i].sizes()), 0.05);
    state.ema[i].copy_(state.raw[i]);
  }
  must(write_snapshot_file(path, snapshot_tensors(state, model_spec()), file.header().metadata));
  return path;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: training-transcript DIR\n");
    return 2;
  }
  const std::string folder = argv[1];
  const std::string shard = write_shard(folder + "/shard.safetensors");
  const TrainingSet set = must(TrainingSet::open({shard}, model_spec()));
  const auto start = must(storage::Safetensors::open(write_start(folder, shard)));
  Trainer trainer = must(Trainer::resume(model_spec(), train_spec(), {shard}, start));
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    write_batch(text(folder, "/batch-", step, ".safetensors"), set, step);
    (void)must(trainer.step());
    must(trainer.write_checkpoint(text(folder, "/after-", step, ".safetensors")));
  }
  return 0;
}
