// SPDX-License-Identifier: Apache-2.0
#include "diffusion/train/train_state.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/text.h"

namespace skerry::diffusion {
namespace {

constexpr double kBeta1 = 0.9;
constexpr double kBeta2 = 0.999;
constexpr double kEpsilon = 1e-8;
constexpr double kClipEpsilon = 1e-6;  // as in torch.nn.utils.clip_grad_norm_
const std::string kFormat = "skerry-checkpoint";

using Tensors = std::vector<at::Tensor>;

// Of the moments and the mean.
at::ScalarType kept_in(StateForm form) {
  return form == StateForm::kLean ? at::kBFloat16 : at::kFloat;
}

void move_to(Tensors& tensors, torch::Device device, at::ScalarType type) {
  for (at::Tensor& tensor : tensors) tensor = tensor.to(device, type);
}

void take_scratch(TrainState& state, StateForm form) {
  if (form != StateForm::kLean) return;
  std::int64_t largest = 0;
  for (const at::Tensor& weight : state.raw) largest = std::max(largest, weight.numel());
  const torch::Device device = state.raw[0].device();
  state.lean.emplace(device, largest, /*by_operators=*/!device.is_cpu());
}

constexpr std::pair<const char*, std::uint32_t ModelSpec::*> kShape[] = {
    {"image_size", &ModelSpec::image_size}, {"channels", &ModelSpec::channels},
    {"patch_size", &ModelSpec::patch_size}, {"width", &ModelSpec::width},
    {"depth", &ModelSpec::depth},           {"heads", &ModelSpec::heads},
    {"classes", &ModelSpec::classes}};
constexpr const char* kRouterExperts = "router_experts";  // experts' snapshots do not name it

std::map<std::string, std::string> identity(const ModelSpec& model, const TrainSpec& train) {
  std::map<std::string, std::string> out{
      {"format", kFormat}, {"seed", text(train.seed)}, {"expert", text(train.expert)}};
  for (const auto& [key, field] : kShape) out[key] = text(model.*field);
  if (model.router_experts > 0) out[kRouterExperts] = text(model.router_experts);
  return out;
}

Result<void> check_identity(const std::map<std::string, std::string>& metadata,
                            const ModelSpec& model, const TrainSpec& train) {
  for (const auto& [key, expected] : identity(model, train)) {
    const auto found = metadata.find(key);
    if (found != metadata.end() && found->second == expected) continue;
    return fail(ErrorCode::kInvalid, text("the checkpoint is not of this training: ", key, " is ",
                                          found == metadata.end() ? "missing" : found->second,
                                          " where ", expected, " is expected"));
  }
  return {};
}

template <class Number>
Result<Number> number_of(const std::map<std::string, std::string>& metadata, const char* key) {
  if (const auto number = storage::number_in<Number>(metadata, key)) return *number;
  return fail(ErrorCode::kCorrupt, text("the checkpoint does not say its ", key));
}

at::Tensor global_norm(const Tensors& tensors) {
  return at::linalg_vector_norm(at::stack(at::_foreach_norm(tensors)), 2);
}

// What one step goes by.
struct Rates {
  at::Tensor count;  // [] fp32: steps with this one
  double learning_rate, weight_decay, ema_decay;
};

void adamw(Tensors& raw, const Tensors& gradients, Tensors& m, Tensors& v, const Rates& rates) {
  const Tensors counts(raw.size(), rates.count);
  at::_fused_adamw_(raw, gradients, m, v, {}, counts, rates.learning_rate, kBeta1, kBeta2,
                    rates.weight_decay, kEpsilon, /*amsgrad=*/false, /*maximize=*/false);
}

void average(Tensors& ema, const Tensors& raw, const Rates& rates) {
  at::_foreach_lerp_(ema, raw, 1 - rates.ema_decay);
}

// By tensors alone: an operand that is a number would be a tensor that is made
// for it.
void back_to_length(TrainState& state, std::size_t i) {
  if (state.held.empty() || !state.held[i].length.defined()) return;
  HeldRows& rows = state.held[i];
  at::linalg_vector_norm_out(rows.factor, state.raw[i], 2, /*dim=*/1, /*keepdim=*/true);
  at::div_out(rows.factor, rows.length, rows.factor);
  state.raw[i].mul_(rows.factor);
}

void update(TrainState& state, const Tensors& gradients, const Rates& rates) {
  adamw(state.raw, gradients, state.m, state.v, rates);
  for (std::size_t i = 0; i < state.held.size(); ++i) back_to_length(state, i);
  average(state.ema, state.raw, rates);
}

// The same, a slice at a time through the scratch: widened, changed, rounded.
// REQUIRES: contiguous gradients.
void update_lean(TrainState& state, const Tensors& gradients, const TrainSpec& train,
                 std::uint64_t step, const Rates& rates) {
  LeanScratch& scratch = *state.lean;
  for (std::size_t i = 0; i < state.raw.size(); ++i) {
    Stream draws({.seed = train.seed,
                  .expert = train.expert,
                  .attempt = train.attempt,
                  .step = step,
                  .sample = static_cast<std::uint32_t>(i),
                  .purpose = Purpose::kRounding});
    std::array<pointwise::RoundingKey, 3> keys;
    for (pointwise::RoundingKey& key : keys) key = {draws.u32(), draws.u32()};
    const std::array kept{&state.m[i], &state.v[i], &state.ema[i]};
    // Numbers of kept[first] to kept[last − 1], with the same places of other
    // tensors.
    const auto in_slices = [&](std::size_t first, std::size_t last, const auto& change) {
      for (std::int64_t begin = 0; begin < state.raw[i].numel(); begin += scratch.slice) {
        const std::int64_t count = std::min(scratch.slice, state.raw[i].numel() - begin);
        const auto part = [&](const at::Tensor& whole) {
          return whole.view(-1).narrow(0, begin, count);
        };
        std::array<Tensors, 3> exact;
        for (std::size_t k = first; k < last; ++k) {
          exact[k] = {scratch.exact[k].narrow(0, 0, count)};
          exact[k][0].copy_(part(*kept[k]));
        }
        change(exact, part);
        for (std::size_t k = first; k < last; ++k) {
          round_at_random(exact[k][0], keys[k], begin, scratch, part(*kept[k]));
        }
      }
    };
    in_slices(0, 2, [&](auto& exact, const auto& part) {
      Tensors raw{part(state.raw[i])};
      adamw(raw, {part(gradients[i])}, exact[0], exact[1], rates);
    });
    back_to_length(state, i);
    in_slices(2, 3, [&](auto& exact, const auto& part) {
      average(exact[2], {part(state.raw[i])}, rates);
    });
  }
}

}  // namespace

TrainState initial_state(const ModelSpec& model, const TrainSpec& train, torch::Device device) {
  return state_of(initial_weights(model, train.seed, train.expert, train.attempt), train, device);
}

TrainState state_of(Tensors weights, const TrainSpec& train, torch::Device device) {
  TrainState state;
  state.raw = std::move(weights);
  move_to(state.raw, device, at::kFloat);
  const at::ScalarType kept = kept_in(train.state);
  for (const at::Tensor& weight : state.raw) {
    state.ema.push_back(weight.to(kept, /*non_blocking=*/false, /*copy=*/true));
    for (Tensors* moments : {&state.m, &state.v})
      moments->push_back(at::zeros_like(state.ema.back()));
  }
  take_scratch(state, train.state);
  return state;
}

Result<TrainState> load_state(const storage::Safetensors& checkpoint, const ModelSpec& model,
                              const TrainSpec& train, torch::Device device) {
  const auto& metadata = checkpoint.header().metadata;
  TRY(check_identity(metadata, model, train));
  TrainState state;
  ASSIGN_OR_RETURN(state.step, number_of<std::uint64_t>(metadata, "step"));
  for (const auto& [prefix, tensors] :
       {std::pair{"ema/", &state.ema}, std::pair{"raw/", &state.raw}, std::pair{"m/", &state.m},
        std::pair{"v/", &state.v}}) {
    ASSIGN_OR_RETURN(*tensors, load_weights(checkpoint, prefix, model));
    move_to(*tensors, device, tensors == &state.raw ? at::kFloat : kept_in(train.state));
  }
  take_scratch(state, train.state);
  return state;
}

void hold_rows(TrainState& state, const ModelSpec& model) {
  for (const double length : held_lengths(model)) {
    const at::Tensor& weight = state.raw[state.held.size()];
    const auto make = [&] {
      return at::full({weight.size(0), 1}, length, weight.options().requires_grad(false));
    };
    state.held.push_back(length > 0 ? HeldRows{make(), make()} : HeldRows{});
  }
}

Result<ModelSpec> model_of(const std::map<std::string, std::string>& metadata) {
  ModelSpec model;
  for (const auto& [key, field] : kShape) {
    ASSIGN_OR_RETURN(model.*field, number_of<std::uint32_t>(metadata, key));
  }
  if (metadata.contains(kRouterExperts)) {
    ASSIGN_OR_RETURN(model.router_experts, number_of<std::uint32_t>(metadata, kRouterExperts));
  }
  TRY(validate(model));
  return model;
}

std::vector<SnapshotTensor> snapshot_tensors(const TrainState& state, const ModelSpec& model) {
  const std::vector<ParameterShape> shapes = parameter_shapes(model);
  std::vector<SnapshotTensor> tensors;
  std::array parts{std::pair{"ema/", &state.ema}, std::pair{"raw/", &state.raw},
                   std::pair{"m/", &state.m}, std::pair{"v/", &state.v}};
  if (state.lean)
    std::swap(parts[0], parts[1]);  // so that every number stands at a multiple of its size
  for (const auto& [prefix, values] : parts) {
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const at::Tensor& tensor = (*values)[i];
      const bool halves = tensor.scalar_type() == at::kBFloat16;
      tensors.push_back({.name = prefix + shapes[i].name,
                         .dtype = halves ? storage::DType::kBF16 : storage::DType::kF32,
                         .shape = {shapes[i].shape.begin(), shapes[i].shape.end()},
                         .copy = [&tensor](char* destination) {
                           at::from_blob(destination, tensor.sizes(), tensor.scalar_type())
                               .copy_(tensor, /*non_blocking=*/true);
                         }});
    }
  }
  return tensors;
}

std::map<std::string, std::string> snapshot_metadata(const TrainState& state,
                                                     const ModelSpec& model, const TrainSpec& train,
                                                     const std::string& fingerprint) {
  auto metadata = identity(model, train);
  metadata["step"] = text(state.step);
  metadata["attempt"] = text(train.attempt);
  metadata["fingerprint"] = fingerprint;
  return metadata;
}

namespace {

// The largest magnitude of each tensor is finite if all of its numbers are: one
// number is read, which waits for a card once.
bool all_finite(const TrainState& state) {
  Tensors largest;
  for (const Tensors* tensors : {&state.raw, &state.m, &state.v, &state.ema}) {
    largest.push_back(at::stack(at::_foreach_norm(*tensors, INFINITY)).to(at::kFloat));
  }
  return at::cat(largest).isfinite().all().item<bool>();
}

}  // namespace

std::optional<std::string> first_non_finite(const TrainState& state, const ModelSpec& model) {
  if (all_finite(state)) return std::nullopt;
  const std::vector<ParameterShape> shapes = parameter_shapes(model);
  for (const auto& [prefix, values] : {std::pair{"raw/", &state.raw}, std::pair{"m/", &state.m},
                                       std::pair{"v/", &state.v}, std::pair{"ema/", &state.ema}}) {
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      if (!(*values)[i].isfinite().all().item<bool>()) return prefix + shapes[i].name;
    }
  }
  return std::nullopt;
}

double apply_gradients(TrainState& state, Tensors& gradients, const TrainSpec& train) {
  const at::NoGradGuard no_grad;
  const at::Tensor norm = global_norm(gradients);
  if (train.clip > 0)
    at::_foreach_mul_(gradients, at::clamp_max(train.clip / (norm + kClipEpsilon), 1.0));
  if (state.lean) {
    for (at::Tensor& gradient : gradients) gradient = gradient.contiguous();
  }
  const std::uint64_t step = state.step;
  const Rates rates{.count = at::full({}, static_cast<double>(step + 1),
                                      state.raw[0].options().requires_grad(false)),
                    .learning_rate = learning_rate_at(train, step),
                    .weight_decay = train.weight_decay,
                    .ema_decay = ema_decay_at(train, step)};
  ++state.step;
  if (state.lean) {
    update_lean(state, gradients, train, step, rates);
  } else {
    update(state, gradients, rates);
  }
  return norm.item<double>();
}

}  // namespace skerry::diffusion
