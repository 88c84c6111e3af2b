// SPDX-License-Identifier: Apache-2.0
#include "diffusion/sample/sample.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "base/log.h"
#include "base/random.h"
#include "base/text.h"
#include "diffusion/model/autoencoder.h"
#include "diffusion/model/padded.h"
#include "diffusion/router/analytic.h"
#include "diffusion/router/learned.h"
#include "diffusion/router/prompt_shares.h"
#include "diffusion/runtime/device.h"
#include "diffusion/sample/draw.h"
#include "diffusion/sample/prompts.h"
#include "diffusion/sample/solver.h"

namespace skerry::diffusion {
namespace {

constexpr std::int64_t kDecodedAtOnce = 4;

Stream stream_of(const SampleSpec& spec, std::size_t image, Purpose purpose) {
  return Stream({.seed = spec.seed,
                 .expert = 0,
                 .attempt = 0,
                 .step = 0,
                 .sample = static_cast<std::uint32_t>(image),
                 .purpose = purpose});
}

Result<std::vector<std::int32_t>> assign_labels(const SampleSpec& spec,
                                                const EnsembleIndex& index) {
  const auto classes = static_cast<std::int32_t>(index.classes.size());
  std::vector<std::int32_t> labels(spec.count, -1);
  if (spec.label) {
    if (*spec.label < -1 || *spec.label >= classes) {
      return fail(ErrorCode::kInvalid,
                  text("label ", *spec.label, " is not one of the ensemble's ", classes,
                       " classes (0 to ", classes - 1, ", or −1 for none)"));
    }
    std::fill(labels.begin(), labels.end(), *spec.label);
  } else if (classes > 0 && !index.model.is_pixart()) {
    for (std::size_t i = 0; i < labels.size(); ++i)
      labels[i] = static_cast<std::int32_t>(i) % classes;
  }
  return labels;
}

// Of each prompt, the share of each expert; empty for an ensemble that knows no
// captions.
Result<std::vector<std::vector<double>>> prompt_shares(const EnsembleIndex& index,
                                                       const Prompts& prompts) {
  std::vector<std::vector<double>> shares;
  if (prompts.tokens.empty()) return shares;
  const std::string path = index.router_folder() + "/router.safetensors";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return shares;
  ASSIGN_OR_RETURN(const storage::Safetensors file, storage::Safetensors::open(path));
  ASSIGN_OR_RETURN(const auto captions, caption_statistics_in(file, path));
  if (!captions) return shares;
  if (captions->dim != index.model.caption_dim) {
    return fail(ErrorCode::kCorrupt, text(path, ": expected captions of ", index.model.caption_dim,
                                          " numbers a token, found ", captions->dim));
  }
  const PromptShares known(*captions, index.indices);
  for (const auto& tokens : prompts.tokens) {
    if (tokens.empty()) {  // the null caption
      ASSIGN_OR_RETURN(shares.emplace_back(), index.expert_shares(-1));
    } else {
      shares.push_back(
          known.of(pooled(storage::bytes_of_values<std::uint16_t>(tokens), captions->dim)));
    }
  }
  return shares;
}

Result<std::vector<std::int32_t>> draw_experts(const SampleSpec& spec, const EnsembleIndex& index,
                                               const std::vector<std::int32_t>& labels,
                                               const Prompts& prompts) {
  ASSIGN_OR_RETURN(const auto by_prompt, prompt_shares(index, prompts));
  std::vector<std::int32_t> experts;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    std::vector<double> shares;
    if (by_prompt.empty()) {
      ASSIGN_OR_RETURN(shares, index.expert_shares(labels[i]));
    } else {
      shares = by_prompt[i % by_prompt.size()];
    }
    double left = stream_of(spec, i, Purpose::kAncestral).uniform();
    std::size_t chosen = 0;
    for (std::size_t k = 0; k < shares.size(); ++k) {
      if (shares[k] <= 0) continue;
      chosen = k;  // the last with a share takes what rounding leaves
      if (left < shares[k]) break;
      left -= shares[k];
    }
    experts.push_back(static_cast<std::int32_t>(chosen));
  }
  return experts;
}

// Where the one expert that was asked for stands in the ensemble.
Result<std::int32_t> place_of(std::int32_t expert, const EnsembleIndex& index) {
  const auto found = std::ranges::find(index.indices, expert);
  if (found != index.indices.end()) return static_cast<std::int32_t>(found - index.indices.begin());
  std::string known;
  for (const std::int32_t each : index.indices) known += text(known.empty() ? "" : ", ", each);
  return fail(ErrorCode::kInvalid,
              text("expert ", expert, " is not of this ensemble, whose experts are ", known));
}

// What a batch is drawn by: its own, and the null branch of guidance, of one
// row.
struct Given {
  Condition own, null;

  Given at_rows(const at::Tensor& rows) const {
    Given part = *this;
    for (at::Tensor* each : {&part.own.labels, &part.own.captions, &part.own.mask})
      if (each->defined()) *each = each->index_select(0, rows);
    return part;
  }
  // First every row by its own, then every row by the null branch.
  Condition both() const {
    const auto twice = [](const at::Tensor& mine, const at::Tensor& nulls) {
      if (!mine.defined()) return mine;
      std::vector<std::int64_t> shape = mine.sizes().vec();
      return at::cat({mine, nulls.expand(shape)});
    };
    return {.labels = twice(own.labels, null.labels),
            .captions = twice(own.captions, null.captions),
            .mask = twice(own.mask, null.mask)};
  }
};

Result<std::unique_ptr<Router>> load_router(const SampleSpec& spec, const Ensemble& ensemble) {
  const EnsembleIndex& index = ensemble.index();
  const std::string folder = index.router_folder();
  const bool learned =
      spec.router ? *spec.router == RouterKind::kLearned : index.has_learned_router;
  return learned ? load_learned_router(folder + "/learned.safetensors", folder, ensemble.device())
                 : load_analytic_router(folder);
}

class Sampler {
 public:
  // No router: each image keeps its expert. No autoencoder: what is drawn is
  // not decoded.
  Sampler(const SampleSpec& spec, Ensemble& ensemble, Router* router, const Prompts& prompts,
          const Autoencoder* autoencoder, const SampleProgress& progress)
      : spec_(spec),
        ensemble_(ensemble),
        router_(router),
        prompts_(prompts),
        autoencoder_(autoencoder),
        progress_(progress) {}

  Result<void> draw_all(Samples& samples);

 private:
  using Rows = std::vector<std::size_t>;
  std::vector<Rows> batches(const Samples& samples) const;
  Result<void> draw_batch(const Rows& rows, Samples& samples);
  at::Tensor initial_noise(const Rows& rows) const;
  Result<at::Tensor> decoded(const at::Tensor& latents);
  void step_done() {
    if (progress_) progress_(++steps_done_, steps_total_);
  }
  Result<void> make_room(const at::Tensor& images, Samples& samples) const;
  Given given(const Rows& rows, const Samples& samples) const;
  at::Tensor guided(std::size_t expert, const at::Tensor& x, double t, const Given& given) const;
  at::Tensor mixed(const at::Tensor& x, double t, const Given& given) const;

  const SampleSpec& spec_;
  Ensemble& ensemble_;
  Router* router_;
  const Prompts& prompts_;
  const Autoencoder* autoencoder_;
  const SampleProgress& progress_;
  std::uint64_t steps_done_ = 0, steps_total_ = 0;
};

// Images of one expert share a batch where each keeps its expert.
std::vector<Sampler::Rows> Sampler::batches(const Samples& samples) const {
  std::vector<Rows> by_expert(ensemble_.experts());
  for (std::size_t i = 0; i < samples.labels.size(); ++i) {
    by_expert[router_ == nullptr ? static_cast<std::size_t>(samples.experts[i]) : 0].push_back(i);
  }
  std::vector<Rows> result;
  for (const Rows& rows : by_expert) {
    for (std::size_t begin = 0; begin < rows.size(); begin += spec_.batch_size) {
      const std::size_t end = std::min(rows.size(), begin + spec_.batch_size);
      result.emplace_back(rows.begin() + static_cast<std::ptrdiff_t>(begin),
                          rows.begin() + static_cast<std::ptrdiff_t>(end));
    }
  }
  return result;
}

at::Tensor Sampler::initial_noise(const Rows& rows) const {
  const ModelSpec& model = ensemble_.index().model;
  const std::int64_t size = model.image_size;
  const auto noise =
      at::empty({static_cast<std::int64_t>(rows.size()), model.channels, size, size}, at::kFloat);
  const std::size_t pixels = static_cast<std::size_t>(noise.numel()) / rows.size();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    stream_of(spec_, rows[i], Purpose::kSample)
        .fill_normal({noise.data_ptr<float>() + i * pixels, pixels});
  }
  return noise;
}

// On the device, once for all steps.
Given Sampler::given(const Rows& rows, const Samples& samples) const {
  const torch::Device on = ensemble_.device();
  Given given;
  given.own.labels = at::empty({static_cast<std::int64_t>(rows.size())}, at::kLong);
  for (std::size_t i = 0; i < rows.size(); ++i)
    given.own.labels.data_ptr<std::int64_t>()[i] = samples.labels[rows[i]];
  given.own.labels = given.own.labels.to(on);
  given.null.labels = at::full({1}, -1, given.own.labels.options());
  const std::uint32_t dim = ensemble_.index().model.caption_dim;
  if (dim == 0) return given;
  std::vector<std::string_view> captions;
  for (const std::size_t row : rows) captions.push_back(prompts_.of(row));
  captions.push_back(storage::bytes_of_values<std::uint16_t>(prompts_.null));
  const Condition all = padded(captions, dim);
  const auto split = [&](const at::Tensor& tensor, at::Tensor& own, at::Tensor& null) {
    const at::Tensor there = tensor.to(on);
    own = there.slice(0, 0, -1);
    null = there.slice(0, -1);
  };
  split(all.captions, given.own.captions, given.null.captions);
  split(all.mask, given.own.mask, given.null.mask);
  return given;
}

at::Tensor Sampler::guided(std::size_t expert, const at::Tensor& x, double t,
                           const Given& given) const {
  const EnsembleIndex& index = ensemble_.index();
  const bool blind = index.classes.empty() && !index.model.is_pixart();
  if (spec_.guidance == 1 || blind) return ensemble_.velocity(expert, x, t, given.own);
  const auto both = ensemble_.velocity(expert, at::cat({x, x}), t, given.both());
  const auto halves = both.chunk(2);
  return guide(halves[0], halves[1], spec_.guidance);
}

// The same experts and weights, those of the label, serve both branches of the
// guidance.
at::Tensor Sampler::mixed(const at::Tensor& x, double t, const Given& given) const {
  const auto experts = static_cast<std::int64_t>(ensemble_.experts());
  const std::int64_t keep = spec_.route == Route::kTop1   ? 1
                            : spec_.route == Route::kTop2 ? std::min<std::int64_t>(2, experts)
                                                          : experts;
  const auto log_p = router_->log_probabilities(x, t, given.own.labels).to(at::kFloat);  // [B,K]
  const auto best = at::topk(log_p, keep, 1);
  const auto kept =
      at::full_like(log_p, -INFINITY).scatter(1, std::get<1>(best), std::get<0>(best));
  const auto weights = at::softmax(kept, 1);  // [B,K], zero for the experts left out
  const auto known = weights.to(at::kCPU);    // which waits for a card, once a step
  std::vector<at::Tensor> chosen;             // [b] each
  std::vector<std::int64_t> counts;
  for (std::int64_t k = 0; k < experts; ++k) {
    chosen.push_back(at::nonzero(known.select(1, k)).squeeze(1));
    counts.push_back(chosen.back().numel());
  }
  chosen = at::cat(chosen).to(x.device()).split_with_sizes(counts);
  auto velocity = at::zeros_like(x);
  for (std::int64_t k = 0; k < experts; ++k) {
    const at::Tensor& rows = chosen[static_cast<std::size_t>(k)];
    if (rows.numel() == 0) continue;
    const auto part =
        guided(static_cast<std::size_t>(k), x.index_select(0, rows), t, given.at_rows(rows));
    const auto share = weights.select(1, k).index_select(0, rows).view({-1, 1, 1, 1});
    velocity.index_add_(0, rows, part * share);
  }
  return velocity;
}

// A few at a time: an image takes far more memory than its latent. [n,C,s,s] →
// [n,3,S,S]
Result<at::Tensor> Sampler::decoded(const at::Tensor& latents) {
  const LatentScaling& scaling = *ensemble_.index().latents;
  std::vector<at::Tensor> images;
  for (const at::Tensor& part : latents.split(kDecodedAtOnce)) {
    ASSIGN_OR_RETURN(const at::Tensor decoded,
                     autoencoder_->decode(part / scaling.scale + scaling.shift));
    images.push_back(decoded.to(at::kCPU));
    step_done();
  }
  return at::cat(images);
}

Result<void> Sampler::draw_batch(const Rows& rows, Samples& samples) {
  const Given by = given(rows, samples);
  const VelocityField field = [&](const at::Tensor& x, double t) {
    if (router_ != nullptr) return mixed(x, t, by);
    return guided(static_cast<std::size_t>(samples.experts[rows[0]]), x, t, by);
  };
  at::Tensor images =
      integrate(spec_.solver, spec_.steps, initial_noise(rows).to(ensemble_.device()), field,
                [&](std::uint32_t) { step_done(); });
  if (autoencoder_ != nullptr) {
    ASSIGN_OR_RETURN(images, decoded(images));
  }
  TRY(make_room(images, samples));
  const auto bytes =
      at::clamp(at::round((images + 1) * 127.5), 0, 255).to(at::kCPU, at::kByte).contiguous();
  const std::size_t pixels = static_cast<std::size_t>(bytes.numel()) / rows.size();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::copy_n(bytes.data_ptr<std::uint8_t>() + i * pixels, pixels,
                samples.pixels.data() + rows[i] * pixels);
  }
  if (samples.values.empty()) return {};
  const auto values = images.to(at::kCPU).contiguous();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::copy_n(values.data_ptr<float>() + i * pixels, pixels,
                samples.values.data() + rows[i] * pixels);
  }
  return {};
}

// Only the first decoded images show how large an autoencoder makes them.
Result<void> Sampler::make_room(const at::Tensor& images, Samples& samples) const {
  if (!samples.pixels.empty()) {
    if (images.size(1) == samples.channels && images.size(2) == samples.image_size) return {};
    return fail(ErrorCode::kInvalid,
                text(spec_.autoencoder, ": expected images as large as the first, ",
                     samples.image_size, ", found ", images.size(2)));
  }
  samples.channels = static_cast<std::uint32_t>(images.size(1));
  samples.image_size = static_cast<std::uint32_t>(images.size(2));
  samples.pixels.resize(spec_.count * static_cast<std::size_t>(images[0].numel()));
  if (spec_.keep_values) samples.values.resize(samples.pixels.size());
  return {};
}

Result<void> Sampler::draw_all(Samples& samples) {
  const at::NoGradGuard no_grad;
  const std::vector<Rows> all = batches(samples);
  for (const Rows& rows : all) {
    steps_total_ += spec_.steps;
    if (autoencoder_ != nullptr)
      steps_total_ += (rows.size() + kDecodedAtOnce - 1) / kDecodedAtOnce;
  }
  for (const Rows& rows : all) TRY(draw_batch(rows, samples));
  return {};
}

bool differ(double a, double b) {
  return std::abs(a - b) > 1e-4 * std::max(std::abs(a), std::abs(b));
}

Result<std::optional<Autoencoder>> open_autoencoder(const SampleSpec& spec,
                                                    const Ensemble& ensemble) {
  if (spec.autoencoder.empty()) return std::nullopt;
  const EnsembleIndex& index = ensemble.index();
  if (!index.latents) {
    return fail(ErrorCode::kInvalid,
                text(index.folder, " draws pixels, which need no autoencoder to decode them"));
  }
  ASSIGN_OR_RETURN(
      Autoencoder autoencoder,
      Autoencoder::open(spec.autoencoder, AutoencoderHalf::kDecoder, ensemble.device()));
  if (const auto channels = autoencoder.channels(); channels && *channels != index.model.channels) {
    return fail(
        ErrorCode::kInvalid,
        text(spec.autoencoder, ": expected an autoencoder of latents with ", index.model.channels,
             " channels, as ", index.folder, " draws them, found ", *channels));
  }
  const auto theirs = autoencoder.scaling();
  if (theirs && (differ(theirs->scale, index.latents->scale) ||
                 differ(theirs->shift, index.latents->shift))) {
    log_warning(
        "the dataset's latents were scaled otherwise than this autoencoder's config says: is it "
        "theirs?",
        {{"scale", index.latents->scale},
         {"shift", index.latents->shift},
         {"scaling_factor", theirs->scale},
         {"shift_factor", theirs->shift}});
  }
  return autoencoder;
}

}  // namespace

Result<Samples> draw_samples(Ensemble& ensemble, const SampleSpec& spec,
                             const SampleProgress& progress, Router* router) {
  TRY(validate(spec));
  return guarded([&]() -> Result<Samples> {
    const EnsembleIndex& index = ensemble.index();
    Samples samples;
    samples.classes = index.classes;
    ASSIGN_OR_RETURN(const std::optional<Autoencoder> autoencoder,
                     open_autoencoder(spec, ensemble));
    ASSIGN_OR_RETURN(samples.labels, assign_labels(spec, index));
    ASSIGN_OR_RETURN(const Prompts prompts, read_prompts(spec, index));
    std::unique_ptr<Router> own;
    const bool mixes = !spec.expert && spec.route != Route::kAncestral;
    if (spec.expert) {
      ASSIGN_OR_RETURN(const std::int32_t place, place_of(*spec.expert, index));
      samples.experts.assign(spec.count, place);
    } else if (!mixes) {
      ASSIGN_OR_RETURN(samples.experts, draw_experts(spec, index, samples.labels, prompts));
    } else {
      if (router == nullptr) {
        ASSIGN_OR_RETURN(own, load_router(spec, ensemble));
        router = own.get();
      }
      for (const std::int32_t label : samples.labels) TRY(index.expert_shares(label));
      samples.experts.assign(spec.count, -1);
    }
    TRY(Sampler(spec, ensemble, mixes ? router : nullptr, prompts,
                autoencoder ? &*autoencoder : nullptr, progress)
            .draw_all(samples));
    for (std::int32_t& expert : samples.experts) {
      if (expert >= 0) expert = index.indices[static_cast<std::size_t>(expert)];
    }
    return samples;
  });
}

Result<Samples> sample_ensemble(const std::string& folder, const SampleSpec& spec,
                                const SampleProgress& progress) {
  TRY(validate(spec));
  return guarded([&]() -> Result<Samples> {
    TRY(open_device(spec.device, spec.threads));
    ASSIGN_OR_RETURN(Ensemble ensemble,
                     Ensemble::load(folder, spec.device, spec.resident, spec.precision));
    return draw_samples(ensemble, spec, progress);
  });
}

}  // namespace skerry::diffusion
