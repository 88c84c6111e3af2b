// SPDX-License-Identifier: Apache-2.0
// Measures the speed of training steps and of their parts, and the speed that
// the device could reach: for `skerry-engine bench`. Does not include LibTorch.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "model/spec.h"

namespace skerry::diffusion {

// The parts of a training step in order; a trace shows them under these names.
// The optimiser's part includes the mean of weights.
enum class Phase { kData, kForward, kBackward, kOptimiser };
inline constexpr std::array<const char*, 4> kPhases{"data", "forward", "backward", "optimiser"};
constexpr const char* name_of(Phase phase) { return kPhases[static_cast<std::size_t>(phase)]; }

// Adds up the time of each phase of the steps that run on its thread while it
// lives. Only one may live, and none beside a MemoryMeter or a Trace.
class PhaseClock {
 public:
  // The clock calls `wait` at both ends of each phase, so that a card's work
  // counts in the phase that queued it. That slows the steps a little. Empty:
  // it waits for nothing.
  explicit PhaseClock(std::function<void()> wait = {});
  ~PhaseClock();
  PhaseClock(const PhaseClock&) = delete;
  PhaseClock& operator=(const PhaseClock&) = delete;

  std::array<double, kPhases.size()> seconds() const;  // in the order of kPhases

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// RETURNS: operations a second of a plain matrix product of 1024 by 1024 on the
// CPU, the fastest of a few. It uses the threads and precision of this
// training. A CPU that cannot multiply bf16 gets the number of fp32.
Result<double> measure_cpu_product(const TrainSpec& train);

}  // namespace skerry::diffusion
