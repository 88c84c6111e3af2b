// SPDX-License-Identifier: Apache-2.0
// Draws the next part of a batch on a thread of its own while a step computes,
// so that no step waits for noise or for images to be read. What it gives is
// what make_batch() gives. Includes LibTorch: for this folder only. Thread
// rule: one thread at a time.
#pragma once

#include <compare>
#include <future>
#include <optional>

#include "diffusion/train/train_batch.h"

namespace skerry::diffusion {

class BatchLoader {
 public:
  // `set` must outlive this. For a card the batches lie in pinned memory, which
  // it copies from while the host goes on.
  BatchLoader(const TrainingSet& set, const ModelSpec& model, const TrainSpec& train, bool pinned);

  // Rows [first, first + rows) of the batch of `step`, as many as the batch
  // has; then draws ahead what follows in parts of as many rows. Any part may
  // be asked for: what was drawn ahead in vain is dropped. Throws what
  // make_batch() throws.
  Batch take(std::uint64_t step, std::uint32_t first, std::uint32_t rows);

 private:
  struct Part {
    std::uint64_t step = 0;
    std::uint32_t first = 0, rows = 0;
    auto operator<=>(const Part&) const = default;
  };
  Batch draw(const Part& part);
  std::optional<Batch> drawn_ahead(const Part& part);

  const TrainingSet& set_;
  const ModelSpec model_;
  const TrainSpec train_;
  const bool pinned_;
  SampleOrder order_;  // of whichever thread draws: one at a time
  Part ahead_;
  std::future<Batch> drawn_;  // of ahead_; last, so that it ends before what it reads
};

}  // namespace skerry::diffusion
