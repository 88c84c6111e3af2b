// SPDX-License-Identifier: Apache-2.0
// Images from an ensemble folder. No LibTorch shows here. Image i depends on
// (seed, i) and the settings, not on how many others are drawn. Failure rule: a
// folder that is incomplete or inconsistent is an error that names the file.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace skerry::diffusion {

enum class Solver { kEuler, kHeun, kAdams };
// Ancestral: the expert of an image is drawn once from π(k | label) and kept:
// the exact mixture at the cost of one expert. The others ask the router at
// each step and mix the velocities of the best experts, renormalised.
enum class Route { kAncestral, kTop1, kTop2, kFull };
enum class RouterKind { kAnalytic, kLearned };
Result<Solver> parse_solver(std::string_view name);      // euler, heun, adams
Result<Route> parse_route(std::string_view name);        // ancestral, top1, top2, full
Result<RouterKind> parse_router(std::string_view name);  // analytic, learned

struct SampleSpec {
  std::uint64_t seed = 0;
  std::uint32_t count = 16;
  std::uint32_t steps = 50;
  Solver solver = Solver::kEuler;
  double guidance = 1;  // v = v_null + guidance·(v_label − v_null); 1: no null branch
  Route route = Route::kAncestral;
  std::optional<RouterKind> router;  // none: the ensemble's
  // By its index in the run: it alone draws every image, whatever the route, of
  // labels too that it has not seen.
  std::optional<std::int32_t> expert;
  std::optional<std::int32_t> label;  // none: image i has label i mod classes; −1: no label at all
  std::uint32_t batch_size = 64;
  std::uint32_t threads = 1;
  int device = 0;                  // CUDA device where there is one; −1: the CPU
  std::string precision = "fp32";  // or bf16: matrix products of the experts in it
  bool keep_values = false;        // fills Samples::values
  std::uint32_t resident = 0;      // experts on the device at a time; 0: as many as fit
  std::string
      autoencoder;  // what decodes latents (autoencoder.h); empty: they stay latents, in `values`
};
// kInvalid too for Adams where the expert may change between steps (top1,
// top2): there the velocity jumps.
Result<void> validate(const SampleSpec& spec);

struct Samples {
  std::uint32_t channels = 0, image_size = 0;
  std::vector<std::string> classes;
  std::vector<std::int32_t> labels;   // [n], −1 = none
  std::vector<std::int32_t> experts;  // [n] by their index in the run, −1 where they were mixed
  std::vector<std::uint8_t>
      pixels;                 // [n,C,S,S]; of latents that were not decoded nothing to look at
  std::vector<float> values;  // [n,C,S,S] before rounding; empty unless asked for
};

// `progress` is called with (steps done, steps in all), decoding included.
// kInvalid for an autoencoder where the ensemble draws pixels, or one of
// latents with other channels.
using SampleProgress = std::function<void(std::uint64_t, std::uint64_t)>;
Result<Samples> sample_ensemble(const std::string& folder, const SampleSpec& spec,
                                const SampleProgress& progress);

struct LabelAgreement {
  std::uint64_t labelled = 0;  // samples with a label
  std::uint64_t agree = 0;     // … whose nearest real image bears it
  double share() const {
    return labelled == 0 ? 0 : static_cast<double>(agree) / static_cast<double>(labelled);
  }
};
// Compares each sample with the first `limit` images of a shard (squared
// distance of pixels).
Result<LabelAgreement> nearest_label_agreement(const Samples& samples,
                                               const std::string& shard_path, std::uint64_t limit);

}  // namespace skerry::diffusion
