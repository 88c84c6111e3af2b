// SPDX-License-Identifier: Apache-2.0
// Random numbers as a function of position: Philox4x32-10 (Salmon et al.,
// "Parallel random numbers: as easy as 1, 2, 3", SC 2011). The same position
// gives the same numbers on every machine, in any order, after any restart. So
// a checkpoint needs no generator state.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace skerry {

// One block of the generator: a bijection of the 128-bit counter under the
// 64-bit key.
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key);

// The purpose of a stream of numbers. Reproducible runs depend on the values:
// append, never renumber.
enum class Purpose : std::uint32_t {
  kOrder = 1,         // order of samples in an epoch of the data
  kTime = 2,          // t of a training sample
  kNoise = 3,         // epsilon of a training sample
  kLabelDropout = 4,  // whether the label is replaced by the null label
  kInit = 5,          // initial weights
  kSample = 6,        // initial noise of a generated image
  kAncestral = 7,     // which expert an ancestral sample is drawn from
  kSplit = 8,         // held-back samples at ingestion
  kCluster = 9,       // k-means seeding
  kSimulation = 10,   // fault schedules
  kId = 11,           // identifiers drawn by a core
  kGossip = 12,       // which peers a node gossips with
  kFlip = 13,         // whether a training sample is mirrored
  // how a number of the lean training state is rounded
  kRounding = 14,
};

// The place of a stream in a run. It never includes the run's id, the node, the
// epoch or the micro-batch.
struct Position {
  std::uint64_t seed = 0;
  std::uint32_t expert = 0;
  std::uint32_t attempt = 0;
  std::uint64_t step = 0;
  std::uint32_t sample = 0;  // index within the step's batch
  Purpose purpose = Purpose::kOrder;
};

// The numbers at one position. A value type. THREADS: one at a time.
class Stream {
 public:
  explicit Stream(const Position& position);
  std::uint32_t u32();
  std::uint64_t u64();
  double uniform();                          // [0, 1), 53 bits
  std::uint64_t below(std::uint64_t bound);  // uniform in [0, bound), bound > 0, without bias
  void fill_normal(std::span<float> out);    // standard normals by Box-Muller, in order
  float normal();

 private:
  std::array<std::uint32_t, 2> key_;
  std::array<std::uint32_t, 4> counter_;
  std::array<std::uint32_t, 4> block_{};
  unsigned used_ = 4;
  float spare_ = 0;
  bool has_spare_ = false;
};

}  // namespace skerry
