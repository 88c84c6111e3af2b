// SPDX-License-Identifier: Apache-2.0
#include "diffusion/train/batch_loader.h"

#include <algorithm>
#include <utility>

namespace skerry::diffusion {

BatchLoader::BatchLoader(const TrainingSet& set, const ModelSpec& model, const TrainSpec& train,
                         bool pinned, std::uint32_t rank, std::uint32_t ranks)
    : set_(set),
      model_(model),
      train_(train),
      pinned_(pinned),
      rank_(rank),
      ranks_(ranks),
      order_(train, set.size()) {}

Batch BatchLoader::draw(const Part& part) {
  const std::uint32_t rows = std::min(part.rows, train_.batch_size - part.first);
  return make_batch(set_, order_, model_, train_, part.step, part.first, rows, pinned_);
}

// What was drawn ahead, if it is this part. Where that failed, for want of
// memory while a step held its most, it may not fail again.
std::optional<Batch> BatchLoader::drawn_ahead(const Part& part) {
  std::future<Batch> drawn = std::exchange(drawn_, {});
  if (!drawn.valid()) return std::nullopt;
  drawn.wait();
  if (ahead_ != part) return std::nullopt;
  try {
    return drawn.get();
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

Batch BatchLoader::take(std::uint64_t step, std::uint32_t first, std::uint32_t rows) {
  const Part part{step, first, rows};
  std::optional<Batch> drawn = drawn_ahead(part);
  Batch batch = drawn ? std::move(*drawn) : draw(part);
  const std::uint64_t next = first + std::uint64_t{rows} * ranks_;
  const std::uint64_t begin = std::uint64_t{rows} * rank_;
  ahead_ = next < train_.batch_size ? Part{step, static_cast<std::uint32_t>(next), rows}
                                    : Part{step + 1, static_cast<std::uint32_t>(begin), rows};
  if (ahead_.first >= train_.batch_size) return batch;  // it has none
  // Where no thread can be had, it is drawn when it is taken.
  drawn_ = std::async(std::launch::async | std::launch::deferred, [this] { return draw(ahead_); });
  return batch;
}

}  // namespace skerry::diffusion
