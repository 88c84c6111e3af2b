// SPDX-License-Identifier: Apache-2.0
// Draws the next part of a batch on its own thread while a step computes, so
// that no step waits for noise or images. It returns what make_batch() returns.
// Includes LibTorch: for this folder only.
// THREADS: one at a time.
#pragma once

#include <compare>
#include <future>
#include <optional>

#include "diffusion/train/train_batch.h"

namespace skerry::diffusion {

class BatchLoader {
 public:
  // For a card the batches are in pinned memory, so that it copies while the
  // host goes on. Of `ranks` loaders that take turns at the parts of a batch,
  // this is number `rank`.
  // LIFETIME: `set` outlives this.
  BatchLoader(const TrainingSet& set, const ModelSpec& model, const TrainSpec& train, bool pinned,
              std::uint32_t rank = 0, std::uint32_t ranks = 1);

  // RETURNS: rows [first, first + rows) of the batch of `step`, as many as the
  // batch has. Then it draws ahead its next part, of the same size. Any part
  // may be requested; unused parts are dropped.
  // ON FAILURE: throws as make_batch().
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
  const std::uint32_t rank_, ranks_;
  SampleOrder order_;  // used by the drawing thread: one at a time
  Part ahead_;
  std::future<Batch> drawn_;  // of ahead_; last, so that it ends before its inputs
};

}  // namespace skerry::diffusion
