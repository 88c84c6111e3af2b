// SPDX-License-Identifier: Apache-2.0
// Trains one expert, or the router: shards and a spec in, weights out. Flow
// matching (arXiv 2501.05450): x_t = (1−t)·x0 + t·ε, the target v = ε − x0.
//
// Every random number is a function of (seed, expert, attempt, step, sample,
// purpose). So a trainer resumed at step n continues as if it had never
// stopped, bit for bit on the same fingerprint. Does not include LibTorch.
//
// THREADS: one at a time, always the same one.
// ON FAILURE: unusable shards, specs and checkpoints are errors. A device that
// is out of memory even for one sample at a time gives kExhausted.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/spec.h"
#include "storage/safetensors.h"

namespace skerry::diffusion {

struct StepMetrics {
  std::uint64_t step = 0;  // steps finished after this one
  double loss =
      0;  // mean over the batch: squared velocity error, or a router's cross-entropy in nats
  double gradient_norm = 0;
  double learning_rate = 0;
};

class Trainer {
 public:
  // Reports the phase that begins next; on a cold GPU or disk each may take
  // long.
  using Progress = std::function<void(const char* phase)>;
  // A file of weights among the shards replaces the random initial weights. Its
  // names are those of exports, or those of snapshots without "ema/".
  // ON FAILURE: kCorrupt if it has another shape.
  static Result<Trainer> create(const ModelSpec& model, const TrainSpec& train,
                                const std::vector<std::string>& shard_paths,
                                const Progress& progress = {});
  // Continues from a checkpoint that write_snapshot() wrote. The attempt may
  // differ, and so may the form of the state, which becomes that of `train`.
  // ON FAILURE: kInvalid if it is of another model, seed or expert.
  static Result<Trainer> resume(const ModelSpec& model, const TrainSpec& train,
                                const std::vector<std::string>& shard_paths,
                                const storage::Safetensors& checkpoint,
                                const Progress& progress = {});
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;
  ~Trainer();

  // Trains one step and waits for its metrics. If the device is out of memory,
  // the trainer halves the number of samples that go through the model at a
  // time and logs it. The smaller number stays, and the fingerprint changes.
  Result<StepMetrics> step();
  // The same without the wait for this step: on a card the next one can be
  // queued while it runs.
  // RETURNS: the metrics of the step before, unless settle() returned them.
  Result<std::optional<StepMetrics>> advance();
  // Waits for the last step.
  // RETURNS: its metrics, unless step() or settle() returned them.
  Result<std::optional<StepMetrics>> settle();
  std::uint64_t steps_done() const;

  // RETURNS: in words, the first value that is not finite: the loss of a step
  // since the last call, or a weight, moment or mean. None: all are finite. A
  // state that is not finite must never be committed.
  Result<std::optional<std::string>> non_finite();
  // Waits until the device has finished all queued work.
  void wait() const;

  // Writes the whole state as safetensors (ema/… raw/… m/… v/…, metadata) into
  // a descriptor. Resizes the descriptor to fit and writes through a mapping,
  // which stays for the next snapshot.
  // RETURNS: the bytes.
  // ON FAILURE: the content of the descriptor is undefined.
  Result<std::uint64_t> write_snapshot(int descriptor) const;
  Result<void> write_checkpoint(const std::string& path) const;  // the same as a file, atomically
  std::uint64_t snapshot_bytes() const;

  std::uint64_t parameter_count() const;
  std::uint64_t sample_count() const;  // in the shards
  const std::string& device_name() const;
  // Equal fingerprints and equal inputs give equal bytes.
  const std::string& fingerprint() const;

 private:
  struct Impl;
  explicit Trainer(std::unique_ptr<Impl> impl);
  static Result<Trainer> make(const ModelSpec& model, const TrainSpec& train,
                              const std::vector<std::string>& shard_paths,
                              const storage::Safetensors* checkpoint, const Progress& progress);
  std::unique_ptr<Impl> impl_;
};

}  // namespace skerry::diffusion
