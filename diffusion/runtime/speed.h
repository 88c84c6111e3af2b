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
#include "diffusion/model/spec.h"

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

// RETURNS: the floating-point operations of one sample's forward pass through
// an expert. It counts matrix products only, with an addition and a
// multiplication each. Training takes three times as many, without what
// gradient checkpointing repeats.
double forward_flops(const ModelSpec& model);

// RETURNS: operations a second of a plain matrix product of 1024 by 1024 on the
// CPU, the fastest of a few. It uses the threads and precision of this
// training. A CPU that cannot multiply bf16 gets the number of fp32.
Result<double> measure_cpu_product(const TrainSpec& train);

// RETURNS: operations a second of a card's dense matrix products in this
// precision, as its maker publishes them; nullopt: not known. `device_name` is
// the driver's name of the card.
// - bf16: tensor cores that sum in fp32.
// - fp32: no TF32, which the engine does not use.
std::optional<double> published_peak(const std::string& device_name, const std::string& precision);

}  // namespace skerry::diffusion
