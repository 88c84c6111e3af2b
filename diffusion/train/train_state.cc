// SPDX-License-Identifier: Apache-2.0
#include "diffusion/train/train_state.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/random.h"
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

// Consecutive tensors, about as many numbers for each rank.
std::vector<StateSlice> slices_of(const Tensors& weights, const Devices& devices) {
  std::int64_t all = 0, before = 0;
  for (const at::Tensor& weight : weights) all += weight.numel();
  const auto ranks = static_cast<std::int64_t>(devices.size());
  std::vector<StateSlice> slices;
  std::size_t i = 0;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    StateSlice& slice = slices.emplace_back(
        StateSlice{i, i, devices[static_cast<std::size_t>(rank)], std::nullopt});
    for (; i < weights.size() && (before < all * (rank + 1) / ranks || rank + 1 == ranks); ++i)
      before += weights[i].numel();
    slice.last = i;
  }
  return slices;
}

void move_to(Tensors& tensors, const std::vector<StateSlice>& slices, at::ScalarType type) {
  for (const StateSlice& slice : slices) {
    std::ranges::move(laid_out(slice.of(tensors), slice.device, type),
                      tensors.begin() + static_cast<std::ptrdiff_t>(slice.first));
  }
}

void take_scratch(TrainState& state, StateForm form) {
  if (form != StateForm::kLean) return;
  for (StateSlice& slice : state.slices) {
    std::int64_t largest = 0;
    for (const at::Tensor& weight : slice.of(state.raw))
      largest = std::max(largest, weight.numel());
    slice.lean.emplace(slice.device, largest, /*by_operators=*/!slice.device.is_cpu());
  }
}

constexpr std::pair<const char*, std::uint32_t ModelSpec::*> kShape[] = {
    {"image_size", &ModelSpec::image_size}, {"channels", &ModelSpec::channels},
    {"patch_size", &ModelSpec::patch_size}, {"width", &ModelSpec::width},
    {"depth", &ModelSpec::depth},           {"heads", &ModelSpec::heads},
    {"classes", &ModelSpec::classes}};
// Named only where they are set.
constexpr std::pair<const char*, std::uint32_t ModelSpec::*> kRareShape[] = {
    {"router_experts", &ModelSpec::router_experts}, {"caption_dim", &ModelSpec::caption_dim}};
constexpr const char* kInterpolationScale = "interpolation_scale";

std::map<std::string, std::string> identity(const ModelSpec& model, const TrainSpec& train) {
  std::map<std::string, std::string> out{
      {"format", kFormat}, {"seed", text(train.seed)}, {"expert", text(train.expert)}};
  for (const auto& [key, field] : kShape) out[key] = text(model.*field);
  for (const auto& [key, field] : kRareShape) {
    if (model.*field > 0) out[key] = text(model.*field);
  }
  if (model.interpolation_scale != 1) out[kInterpolationScale] = text(model.interpolation_scale);
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

// What one step goes by, on the device of a slice.
struct Rates {
  at::Tensor count;  // [] fp32: steps with this one
  double learning_rate, weight_decay, ema_decay;
};

void adamw(Tensors raw, const Tensors& gradients, Tensors m, Tensors v, const Rates& rates) {
  const Tensors counts(raw.size(), rates.count);
  at::_fused_adamw_(raw, gradients, m, v, {}, counts, rates.learning_rate, kBeta1, kBeta2,
                    rates.weight_decay, kEpsilon, /*amsgrad=*/false, /*maximize=*/false);
}

void average(const Tensors& ema, const Tensors& raw, const Rates& rates) {
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

void update(TrainState& state, const StateSlice& slice, const Tensors& gradients,
            const Rates& rates) {
  const Tensors raw = slice.of(state.raw);
  adamw(raw, slice.of(gradients), slice.of(state.m), slice.of(state.v), rates);
  for (std::size_t i = slice.first; i < slice.last; ++i) back_to_length(state, i);
  average(slice.of(state.ema), raw, rates);
}

// The same, a slice at a time through the scratch: widened, changed, rounded.
// REQUIRES: contiguous gradients.
void update_lean(TrainState& state, StateSlice& slice, const Tensors& gradients,
                 const TrainSpec& train, std::uint64_t step, const Rates& rates) {
  LeanScratch& scratch = *slice.lean;
  for (std::size_t i = slice.first; i < slice.last; ++i) {
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
      adamw({part(state.raw[i])}, {part(gradients[i])}, exact[0], exact[1], rates);
    });
    back_to_length(state, i);
    in_slices(2, 3, [&](auto& exact, const auto& part) {
      average(exact[2], {part(state.raw[i])}, rates);
    });
  }
}

}  // namespace

// A CPU's libraries take other ways for other alignments: there tensors stay
// where LibTorch puts them.
Tensors laid_out(const Tensors& tensors, torch::Device device, at::ScalarType type) {
  Tensors out(tensors.size());
  if (device.is_cpu()) {
    std::ranges::transform(tensors, out.begin(),
                           [&](const at::Tensor& each) { return each.to(device, type); });
    return out;
  }
  constexpr std::int64_t kAligned = 8;  // numbers: 16 bytes of bf16
  const auto each_place = [&](const auto& body) {
    std::int64_t end = 0;
    for (const bool is_matrix : {true, false}) {
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        if ((tensors[i].dim() > 1) != is_matrix) continue;
        body(i, end);
        end += (tensors[i].numel() + kAligned - 1) / kAligned * kAligned;
      }
    }
    return end;
  };
  const std::int64_t numbers = each_place([](std::size_t, std::int64_t) {});
  const at::Tensor buffer = at::empty({numbers}, at::TensorOptions(device).dtype(type));
  each_place([&](std::size_t i, std::int64_t place) {
    out[i] = buffer.narrow(0, place, tensors[i].numel()).view(tensors[i].sizes());
    out[i].copy_(tensors[i]);
  });
  return out;
}

Tensors replica_weights(const Tensors& raw, const ModelSpec& model, torch::Device device,
                        bool bf16) {
  const at::NoGradGuard no_grad;
  Tensors weights = raw;
  const std::vector<ParameterShape> parameters = parameter_shapes(model);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    std::vector<std::size_t> places;
    Tensors from;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const auto wanted = bf16 && is_linear_weight(parameters[i].name) ? at::kBFloat16 : at::kFloat;
      if (wanted != type) continue;
      if (type == at::kFloat && weights[i].device() == device) continue;
      places.push_back(i);
      from.push_back(weights[i]);
    }
    const Tensors copies = laid_out(from, device, type);
    for (std::size_t i = 0; i < places.size(); ++i) weights[places[i]] = copies[i];
  }
  for (at::Tensor& weight : weights) weight.set_requires_grad(true);
  return weights;
}

TrainState initial_state(const ModelSpec& model, const TrainSpec& train, const Devices& devices) {
  return state_of(initial_weights(model, train.seed, train.expert, train.attempt), train, devices);
}

TrainState state_of(Tensors weights, const TrainSpec& train, const Devices& devices) {
  TrainState state;
  state.raw = std::move(weights);
  state.slices = slices_of(state.raw, devices);
  move_to(state.raw, state.slices, at::kFloat);
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
                              const TrainSpec& train, const Devices& devices) {
  const auto& metadata = checkpoint.header().metadata;
  TRY(check_identity(metadata, model, train));
  TrainState state;
  ASSIGN_OR_RETURN(state.step, number_of<std::uint64_t>(metadata, "step"));
  for (const auto& [prefix, tensors] :
       {std::pair{"raw/", &state.raw}, std::pair{"ema/", &state.ema}, std::pair{"m/", &state.m},
        std::pair{"v/", &state.v}}) {
    ASSIGN_OR_RETURN(*tensors, load_weights(checkpoint, prefix, model));
    if (state.slices.empty()) state.slices = slices_of(*tensors, devices);
    move_to(*tensors, state.slices, tensors == &state.raw ? at::kFloat : kept_in(train.state));
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
  for (const auto& [key, field] : kRareShape) {
    if (!metadata.contains(key)) continue;
    ASSIGN_OR_RETURN(model.*field, number_of<std::uint32_t>(metadata, key));
  }
  if (metadata.contains(kInterpolationScale)) {
    ASSIGN_OR_RETURN(model.interpolation_scale, number_of<double>(metadata, kInterpolationScale));
  }
  TRY(validate(model));
  return model;
}

std::vector<SnapshotTensor> snapshot_tensors(const TrainState& state, const ModelSpec& model) {
  const std::vector<ParameterShape> shapes = parameter_shapes(model);
  std::vector<SnapshotTensor> tensors;
  std::array parts{std::pair{"ema/", &state.ema}, std::pair{"raw/", &state.raw},
                   std::pair{"m/", &state.m}, std::pair{"v/", &state.v}};
  if (state.is_lean())
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
    for (const StateSlice& slice : state.slices) {
      if (slice.first == slice.last) continue;
      largest.push_back(at::stack(at::_foreach_norm(slice.of(*tensors), INFINITY))
                            .to(state.slices[0].device, at::kFloat));
    }
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

at::Tensor apply_gradients(TrainState& state, Tensors& gradients, const TrainSpec& train,
                           Ranks& ranks) {
  const at::NoGradGuard no_grad;
  const std::uint64_t step = state.step;
  const auto in_slices = [&](const auto& work) {
    ranks.run([&](std::size_t rank) {
      const at::NoGradGuard no_grad_here;
      StateSlice& slice = state.slices[rank];
      const c10::DeviceGuard guard(slice.device);
      if (slice.first < slice.last) work(rank, slice);
    });
  };
  Tensors norms(state.slices.size());
  in_slices([&](std::size_t rank, const StateSlice& slice) {
    norms[rank] = at::stack(at::_foreach_norm(slice.of(gradients)));
  });
  std::erase_if(norms, [](const at::Tensor& each) { return !each.defined(); });
  for (at::Tensor& each : norms) each = each.to(state.slices[0].device);
  const at::Tensor norm = at::linalg_vector_norm(at::cat(norms), 2);
  at::Tensor factor;
  if (train.clip > 0) factor = at::clamp_max(train.clip / (norm + kClipEpsilon), 1.0);
  std::vector<Rates> rates(
      state.slices.size(),
      {{}, learning_rate_at(train, step), train.weight_decay, ema_decay_at(train, step)});
  in_slices([&](std::size_t rank, const StateSlice& slice) {
    if (factor.defined()) at::_foreach_mul_(slice.of(gradients), factor.to(slice.device));
    for (std::size_t i = slice.first; i < slice.last && slice.lean; ++i)
      gradients[i] = gradients[i].contiguous();
    rates[rank].count = at::full({}, static_cast<double>(step + 1),
                                 state.raw[slice.first].options().requires_grad(false));
  });
  ++state.step;
  in_slices([&](std::size_t rank, StateSlice& slice) {
    if (slice.lean) {
      update_lean(state, slice, gradients, train, step, rates[rank]);
    } else {
      update(state, slice, gradients, rates[rank]);
    }
  });
  return norm;
}

}  // namespace skerry::diffusion
