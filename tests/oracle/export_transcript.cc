// SPDX-License-Identifier: Apache-2.0
// Writes ensembles of random weights as `ensemble fetch` does, and the engine's
// results from them. export_oracle.py recomputes these with diffusers. Files:
// DIR/NAME/ (the ensemble), DIR/NAME.safetensors (noise, velocities, router,
// whole trajectories).
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/random.h"
#include "base/text.h"
#include "diffusion/data/caption_embeddings.h"
#include "diffusion/formats/half.h"
#include "diffusion/router/analytic.h"
#include "diffusion/router/prompt_shares.h"
#include "diffusion/sample/ensemble.h"
#include "diffusion/sample/sample.h"
#include "diffusion/train/train_state.h"
#include "tests/oracle/fetch_fixture.h"

namespace {

using namespace skerry;
using namespace skerry::diffusion;

constexpr std::uint32_t kImages = 7;
constexpr std::uint64_t kSeed = 5;
constexpr double kLevels[] = {1.0, 0.97, 0.7, 0.5, 0.33, 0.05, 0.0};

struct Example {
  std::string name;
  ModelSpec model;
  std::uint32_t experts = 1;
};

// Pixels; latents for the stock pipeline; images without labels; latents with
// captions.
std::vector<Example> examples() {
  const ModelSpec pixels{.image_size = 12,
                         .channels = 3,
                         .patch_size = 3,
                         .width = 48,
                         .depth = 3,
                         .heads = 4,
                         .classes = 5};
  ModelSpec latents = pixels, plain = pixels, captions = pixels;
  latents.channels = 4;
  latents.image_size = 8;
  latents.patch_size = 2;
  plain.channels = 1;
  plain.classes = 0;
  captions = latents;
  captions.classes = 0;
  captions.caption_dim = 24;
  captions.interpolation_scale = 0.5;
  return {{"pixels", pixels, 3},
          {"latents", latents, 2},
          {"plain", plain, 2},
          {"captions", captions, 2}};
}

template <class T>
T must(Result<T> result) {
  if (result) return std::move(*result);
  std::fprintf(stderr, "export-transcript: %s\n", result.error().message.c_str());
  std::exit(1);
}
void must(const Result<void>& result) {
  if (result) return;
  std::fprintf(stderr, "export-transcript: %s\n", result.error().message.c_str());
  std::exit(1);
}

// A stand-in for trained weights. A fixed pattern opens the gates of the
// initial weights, because a shut gate hides the layers behind it. Averages
// differ from the raw weights.
std::string write_checkpoint(const std::string& path, const ModelSpec& model,
                             std::uint32_t expert) {
  TrainSpec train;
  train.expert = expert;
  TrainState state = initial_state(model, train, {torch::kCPU});
  for (std::size_t i = 0; i < state.raw.size(); ++i) {
    const double pace = 0.7 + 0.01 * static_cast<double>(i) + 0.1 * expert;
    const at::Tensor ramp = at::sin(at::arange(state.raw[i].numel(), at::kFloat) * pace);
    state.ema[i] = state.raw[i] + 0.1 * ramp.view(state.raw[i].sizes());
  }
  must(write_snapshot_file(path, snapshot_tensors(state, model), {}));
  return path;
}

at::Tensor normal(std::uint64_t stream, at::IntArrayRef shape) {
  at::Tensor values = at::empty(shape, at::kFloat);
  Stream({.seed = stream, .purpose = Purpose::kSimulation})
      .fill_normal({values.data_ptr<float>(), static_cast<std::size_t>(values.numel())});
  return values;
}

std::vector<float> values_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  return {flat.data_ptr<float>(), flat.data_ptr<float>() + flat.numel()};
}

GaussianStatistics gaussian(std::uint64_t stream, std::int64_t d, std::int64_t rank) {
  const at::Tensor basis = std::get<0>(at::linalg_qr(normal(stream, {d, rank})));
  GaussianStatistics out;
  out.mean = values_of(0.3 * normal(stream + 1, {d}));
  out.components = values_of(basis);
  out.variances = values_of(at::linspace(2, 0.1, rank));
  out.residual = 0.05F;
  return out;
}

std::string write_router(const std::string& folder, const Example& example) {
  std::filesystem::create_directories(folder);
  const auto d = static_cast<std::int64_t>(example.model.pixels());
  constexpr std::int64_t kFine = 12, kFeatures = 6;
  RouterStatistics shared;
  shared.whole = gaussian(100, d, 8);
  shared.feature_count = kFeatures;
  const at::Tensor fine = normal(200, {kFine, kFeatures});
  shared.fine_centroids = values_of(fine / fine.norm(2, 1, true));
  for (std::int32_t i = 0; i < kFine; ++i)
    shared.table.push_back(i % static_cast<std::int32_t>(example.experts));
  shared.levels = {0.05F, 0.3F, 0.6F, 0.95F};
  shared.curve_gaussian = {0.004F, 0.02F, 0.05F, 0.3F};
  shared.curve_feature = {3.F, 2.F, 1.F, 0.F};
  shared.linear_a.assign(std::size(kLinearTimes), 0);
  shared.linear_b.assign(std::size(kLinearTimes) * static_cast<std::size_t>(d), 0);
  if (example.model.is_pixart()) {
    CaptionStatistics captions{.dim = example.model.caption_dim, .sharpness = 7};
    for (const float value : values_of(normal(210, {9, example.model.caption_dim})))
      captions.centroids.push_back(to_half(value / 4));
    for (std::uint32_t i = 0; i < 9 * example.experts; ++i)
      captions.counts.push_back(static_cast<std::int32_t>(i * i % 11));
    shared.captions = std::move(captions);
  }
  must(write_router_statistics(folder + "/router.safetensors", shared));
  for (std::uint32_t k = 0; k < example.experts; ++k) {
    PartitionStatistics partition;
    partition.gaussian = gaussian(300 + 10 * k, d, 5);
    for (std::uint32_t y = 0; y < example.model.classes; ++y)
      partition.label_counts.push_back(
          y == k ? 0 : 10 + 7 * ((y + k) % 3));  // expert k never saw label k
    partition.label_counts.push_back(4 + k);
    for (const std::int64_t count : partition.label_counts) partition.samples += count;
    must(write_partition_statistics(text(folder, "/partition-", k, ".safetensors"), partition));
  }
  return folder;
}

std::string write_ensemble(const std::string& folder, const Example& example) {
  const std::string parts = text(folder, "/", example.name, "-parts");
  oracle::TrainedFiles files{.model = example.model, .router_folder = write_router(parts, example)};
  for (std::uint32_t y = 0; y < example.model.classes; ++y)
    files.classes.push_back(text("class ", y));
  for (std::uint32_t k = 0; k < example.experts; ++k)
    files.checkpoints.push_back(write_checkpoint(text(parts, "/checkpoint-", k), example.model, k));
  const std::string out = text(folder, "/", example.name);
  must(oracle::fetch_ensemble(files, out));
  must(oracle::export_in_shards(files, 200'000, out + "-shards"));
  return out;
}

// Named tensors that stay until they are written.
class Transcript {
 public:
  void add(const std::string& name, const at::Tensor& tensor) {
    tensors_.emplace_back(name, tensor.contiguous());
  }
  void write(const std::string& path) const {
    std::vector<storage::TensorView> views;
    for (const auto& [name, tensor] : tensors_) {
      const auto type =
          tensor.scalar_type() == at::kLong ? storage::DType::kI64 : storage::DType::kF32;
      views.push_back({name,
                       type,
                       {tensor.sizes().begin(), tensor.sizes().end()},
                       {static_cast<const char*>(tensor.data_ptr()), tensor.nbytes()}});
    }
    must(storage::write_safetensors(path, views, {}));
  }

 private:
  std::vector<std::pair<std::string, at::Tensor>> tensors_;
};

at::Tensor numbers(const std::vector<std::int32_t>& values) {
  return torch::tensor(std::vector<std::int64_t>(values.begin(), values.end()), at::kLong);
}

// The noise that image i of this seed starts from.
at::Tensor start_noise(const ModelSpec& model) {
  at::Tensor noise =
      at::empty({kImages, model.channels, model.image_size, model.image_size}, at::kFloat);
  for (std::uint32_t i = 0; i < kImages; ++i) {
    Stream({.seed = kSeed, .sample = i, .purpose = Purpose::kSample})
        .fill_normal({noise.data_ptr<float>() + i * model.pixels(), model.pixels()});
  }
  return noise;
}

// kImages prompts of 1 to 5 tokens, and the null caption of one.
std::string write_prompts(const std::string& path, const ModelSpec& model, Transcript& transcript) {
  constexpr std::int64_t kTokens = 5;
  const at::Tensor embeddings = normal(400, {kImages, kTokens, model.caption_dim});
  const at::Tensor null = normal(401, {1, model.caption_dim});
  const at::Tensor lengths = at::arange(kImages, at::kLong) * 2 % kTokens + 1;
  const at::Tensor mask = (at::arange(kTokens).unsqueeze(0) < lengths.unsqueeze(1)).to(at::kLong);
  Transcript prompts;
  for (const auto& [name, tensor] :
       {std::pair{"embeddings", embeddings}, std::pair{"mask", mask}, std::pair{"null", null}}) {
    prompts.add(name, tensor);
    transcript.add(name, tensor);
  }
  prompts.write(path);
  return path;
}

// A PixArt's whole trajectories: by one expert, and by both.
void add_captions(Transcript& transcript, const std::string& folder, const ModelSpec& model) {
  const std::string prompts = write_prompts(folder + "-prompts.safetensors", model, transcript);
  Ensemble ensemble = must(Ensemble::load(folder, -1));
  const at::Tensor x = start_noise(model), t = at::linspace(0, 1, kImages);
  transcript.add("noise", x);
  transcript.add("t", t);
  const storage::Safetensors file = must(storage::Safetensors::open(prompts));
  const auto read = [&](const char* name, at::ScalarType type) {
    const storage::TensorView view = must(file.tensor(name));
    return at::from_blob(const_cast<char*>(view.data.data()),
                         std::vector<std::int64_t>(view.shape.begin(), view.shape.end()), type)
        .to(at::kFloat);
  };
  const Condition condition{.captions = read("embeddings", at::kFloat),
                            .mask = read("mask", at::kLong)};
  for (std::size_t k = 0; k < ensemble.experts(); ++k)
    transcript.add(text("velocity/", k), ensemble.velocity(k, x, t, condition));
  const std::string router = folder + "/router/router.safetensors";
  const PromptShares shares(
      *must(caption_statistics_in(must(storage::Safetensors::open(router)), router)),
      ensemble.index().indices);
  const CaptionEmbeddings embeddings = must(CaptionEmbeddings::open(prompts));
  std::vector<double> all;
  for (std::uint64_t i = 0; i < kImages; ++i) {
    const std::vector<std::uint16_t> tokens = must(embeddings.tokens_of(i));
    const std::vector<float> one =
        pooled(storage::bytes_of_values<std::uint16_t>(tokens), model.caption_dim);
    for (const double share : shares.of(one)) all.push_back(share);
  }
  transcript.add("shares", torch::tensor(all, at::kDouble).view({kImages, -1}).to(at::kFloat));
  const auto add = [&](const std::string& name, const auto& change) {
    SampleSpec spec;
    spec.seed = kSeed;
    spec.count = kImages;
    spec.guidance = 2;
    spec.device = -1;
    spec.keep_values = true;
    spec.prompt_embeddings = prompts;
    change(spec);
    const Samples samples = must(sample_ensemble(folder, spec, nullptr));
    transcript.add(name, torch::tensor(samples.values).view(x.sizes()));
  };
  add("one", [](SampleSpec& spec) {
    spec.steps = 12;
    spec.expert = 1;
  });
  add("both", [](SampleSpec& spec) {
    spec.steps = 12;
    spec.route = Route::kFull;
  });
  add("exact", [](SampleSpec& spec) {
    spec.steps = 100;
    spec.solver = Solver::kHeun;
    spec.expert = 1;
  });
}

void add_forward(Transcript& transcript, const std::string& folder) {
  Ensemble ensemble = must(Ensemble::load(folder, -1));
  const auto router = must(load_analytic_router(folder + "/router"));
  const at::Tensor x = start_noise(ensemble.index().model);
  const at::Tensor t = at::linspace(0, 1, kImages);
  const auto classes = static_cast<std::int64_t>(ensemble.index().classes.size());
  const at::Tensor labels = at::arange(kImages, at::kLong).remainder(classes + 1) - 1;  // −1: none
  transcript.add("noise", x);
  transcript.add("t", t);
  transcript.add("labels", labels);
  for (std::size_t k = 0; k < ensemble.experts(); ++k)
    transcript.add(text("velocity/", k), ensemble.velocity(k, x, t, {.labels = labels}));
  for (const double level : kLevels)
    transcript.add(text("router/", level), router->log_probabilities(x, level, labels));
}

void add_trajectory(Transcript& transcript, const std::string& folder, const ModelSpec& model,
                    Route route, Solver solver, double guidance, std::uint32_t steps,
                    const std::string& name) {
  SampleSpec spec;
  spec.seed = kSeed;
  spec.count = kImages;
  spec.steps = steps;
  spec.solver = solver;
  spec.guidance = guidance;
  spec.route = route;
  spec.device = -1;
  spec.keep_values = true;
  const Samples samples = must(sample_ensemble(folder, spec, nullptr));
  const std::int64_t size = model.image_size;
  transcript.add(name, torch::tensor(samples.values).view({kImages, model.channels, size, size}));
  if (route == Route::kAncestral) transcript.add(name + "/experts", numbers(samples.experts));
  transcript.add(name + "/labels", numbers(samples.labels));
}

void add_trajectories(Transcript& transcript, const std::string& folder, const ModelSpec& model) {
  const std::pair<const char*, Route> routes[] = {{"ancestral", Route::kAncestral},
                                                  {"top1", Route::kTop1},
                                                  {"top2", Route::kTop2},
                                                  {"full", Route::kFull}};
  for (const auto& each : routes) {
    const auto add = [&](const char* solver, Solver kind, double guidance, std::uint32_t steps) {
      add_trajectory(transcript, folder, model, each.second, kind, guidance, steps,
                     text("sample/", each.first, "/", solver, "/", guidance, "/", steps));
    };
    add("euler", Solver::kEuler, 1, 12);
    add("heun", Solver::kHeun, 2, 6);
  }
  add_trajectory(transcript, folder, model, Route::kFull, Solver::kHeun, 2, 100, "exact");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: export-transcript DIR\n");
    return 2;
  }
  const torch::NoGradGuard no_grad;
  for (const Example& example : examples()) {
    const std::string folder = write_ensemble(argv[1], example);
    Transcript transcript;
    if (example.model.is_pixart()) {
      add_captions(transcript, folder, example.model);
    } else {
      add_forward(transcript, folder);
      add_trajectories(transcript, folder, example.model);
    }
    transcript.write(text(argv[1], "/", example.name, ".safetensors"));
  }
  return 0;
}
