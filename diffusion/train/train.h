// SPDX-License-Identifier: Apache-2.0
// Training one expert, or the router: shards and a spec in, weights out. Flow
// matching (arXiv 2501.05450): x_t = (1−t)·x0 + t·ε, the target v = ε − x0.
// Every random number is a function of (seed, expert, attempt, step, sample,
// purpose), so a trainer resumed at step n continues as if it had never
// stopped, bit for bit on the same fingerprint. No LibTorch shows here. Thread
// rule: one thread at a time, always the same one. Failure rule: shards, specs
// and checkpoints that cannot be trained with are errors, as is a device out of
// memory (kExhausted) where not even one sample at a time fits.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "diffusion/model/spec.h"
#include "storage/safetensors.h"

namespace skerry::diffusion {

struct StepMetrics {
  std::uint64_t step = 0;  // steps done after this one
  double loss =
      0;  // mean over the batch: squared velocity error, or a router's cross-entropy in nats
  double gradient_norm = 0;
  double learning_rate = 0;
};

class Trainer {
 public:
  // Told what is begun next: on a cold GPU or disk each may take long.
  using Progress = std::function<void(const char* phase)>;
  // A file of weights among the shards, in the names that exports and snapshots
  // give them but for "ema/", is what training starts from instead of random
  // numbers. kCorrupt where it is of another shape.
  static Result<Trainer> create(const ModelSpec& model, const TrainSpec& train,
                                const std::vector<std::string>& shard_paths,
                                const Progress& progress = {});
  // Continues from a checkpoint that write_snapshot wrote. kInvalid where it is
  // of another model, seed or expert; the attempt may differ, and so may the
  // form of the state, which becomes that of `train`.
  static Result<Trainer> resume(const ModelSpec& model, const TrainSpec& train,
                                const std::vector<std::string>& shard_paths,
                                const storage::Safetensors& checkpoint,
                                const Progress& progress = {});
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;
  ~Trainer();

  // Where the device has too little memory for the samples that go through the
  // model at a time, they are halved, which is logged, and stay so: the
  // fingerprint changes.
  Result<StepMetrics> step();
  std::uint64_t steps_done() const;

  // What is not finite, in words: the loss of a step since the last call, or a
  // weight, moment or mean. None: all is well. A state that is not finite must
  // never be committed.
  Result<std::optional<std::string>> non_finite();
  // Waits until the device has done all that it was asked for.
  void wait() const;

  // The whole state as safetensors (ema/… raw/… m/… v/…, metadata) into a
  // descriptor, which is resized to fit and written through a mapping, which
  // stays for the next snapshot. Returns the bytes. On failure what the
  // descriptor holds is undefined.
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
