// SPDX-License-Identifier: Apache-2.0
// How fast training steps are, of what parts, and how fast they could be: for
// `skerry-engine bench`. No LibTorch shows here.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "diffusion/model/spec.h"

namespace skerry::diffusion {

// The parts of a training step in their order; a trace shows them under these
// names. The optimiser's has the mean of weights in it.
enum class Phase { kData, kForward, kBackward, kOptimiser };
inline constexpr std::array<const char*, 4> kPhases{"data", "forward", "backward", "optimiser"};
constexpr const char* name_of(Phase phase) { return kPhases[static_cast<std::size_t>(phase)]; }

// Adds up the time of each phase of the steps that run on its thread while it
// lives. One at a time, and none beside a MemoryMeter or a Trace.
class PhaseClock {
 public:
  // `wait` is called at both ends of each phase: for a card that computes the
  // steps, so that its work counts where it was asked for. The steps are a
  // little slower by that. None: nothing is waited for.
  explicit PhaseClock(std::function<void()> wait = {});
  ~PhaseClock();
  PhaseClock(const PhaseClock&) = delete;
  PhaseClock& operator=(const PhaseClock&) = delete;

  std::array<double, kPhases.size()> seconds() const;  // in the order of kPhases

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The floating-point operations of one sample's forward pass through an expert:
// of its matrix products, an addition and a multiplication each. Training takes
// three times as many, whatever gradient checkpointing repeats.
double forward_flops(const ModelSpec& model);

// Operations a second of a plain matrix product of 1024 by 1024 on the CPU, the
// fastest of a few, with the threads and in the precision of this training. A
// CPU that cannot multiply bf16 has that of fp32.
Result<double> measure_cpu_product(const TrainSpec& train);

// Operations a second of a card's dense matrix products in this precision, by
// the name that its driver gives it, as its maker publishes them (bf16: tensor
// cores that sum in fp32; fp32: no TF32, which the engine does not use).
// nullopt: not known.
std::optional<double> published_peak(const std::string& device_name, const std::string& precision);

}  // namespace skerry::diffusion
