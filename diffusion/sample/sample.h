// SPDX-License-Identifier: Apache-2.0
// Draws images from an ensemble folder. Image i depends on (seed, i) and the
// settings, not on the number of images. Does not include LibTorch.
// ON FAILURE: the error names the file that is missing or inconsistent.
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
// How an image gets its velocity. Ancestral draws the expert of an image once
// from π(k | label) and keeps it: the exact mixture at the cost of one expert.
// The others ask the router at each step and mix the velocities of the best
// experts, renormalised.
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
  // v_null + guidance·(v − v_null), where v is of label or prompt; 1: no null
  // branch
  double guidance = 1;
  Route route = Route::kAncestral;
  std::optional<RouterKind> router;  // none: the ensemble's
  // The index in the run of the expert that draws every image. It overrides the
  // route, and also draws labels that it has not seen.
  std::optional<std::int32_t> expert;
  // None: image i has label i mod classes, or no label beside a prompt. −1: no
  // label at all.
  std::optional<std::int32_t> label;
  std::uint32_t batch_size = 64;
  std::uint32_t threads = 1;
  int device = 0;                  // CUDA device where there is one; −1: the CPU
  std::string precision = "fp32";  // or bf16: matrix products of the experts in it
  bool keep_values = false;        // fills Samples::values
  std::uint32_t resident = 0;      // experts on the device at a time; 0: as many as fit
  // decodes latents (autoencoder.h); empty: they stay latents, in `values`
  std::string autoencoder;
  // A file of CaptionEmbeddings, for an ensemble that was trained on captions:
  // image i has the prompt i mod N. Its `null` is the null branch of guidance.
  std::string prompt_embeddings;
  // In its place: texts in turn, and the folder of the T5 encoder of the
  // dataset's captions (text_encoder_config.h).
  std::vector<std::string> prompts;
  std::string text_encoder;
};
// ON FAILURE: kInvalid, also for Adams if the expert may change between steps
// (top1, top2): the velocity jumps there.
Result<void> validate(const SampleSpec& spec);

struct Samples {
  std::uint32_t channels = 0, image_size = 0;
  std::vector<std::string> classes;
  std::vector<std::int32_t> labels;  // [n], −1 = none
  // [n] by their index in the run, −1 for mixed ones
  std::vector<std::int32_t> experts;
  // [n,C,S,S]; not viewable if latents were not decoded
  std::vector<std::uint8_t> pixels;
  std::vector<float> values;  // [n,C,S,S] before rounding; empty unless asked for
};

// Calls `progress` with (steps finished, steps in all), decoding included.
// ON FAILURE: kInvalid for an autoencoder if the ensemble draws pixels, or if
// the autoencoder's latents have other channels.
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
// Compares each sample with the first `limit` images of a shard, by squared
// distance of pixels.
Result<LabelAgreement> nearest_label_agreement(const Samples& samples,
                                               const std::string& shard_path, std::uint64_t limit);

}  // namespace skerry::diffusion
