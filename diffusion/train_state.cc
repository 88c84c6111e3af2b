#include "diffusion/train_state.h"

#include "base/text.h"

namespace skerry::diffusion {
namespace {

constexpr double kBeta1 = 0.9;
constexpr double kBeta2 = 0.999;
constexpr double kEpsilon = 1e-8;
constexpr double kClipEpsilon = 1e-6;  // as in torch.nn.utils.clip_grad_norm_
const std::string kFormat = "skerry-checkpoint";

std::vector<at::Tensor> zeros_like(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> zeros;
  for (const at::Tensor& tensor : tensors) zeros.push_back(at::zeros_like(tensor));
  return zeros;
}

void move_to(std::vector<at::Tensor>& tensors, torch::Device device) {
  for (at::Tensor& tensor : tensors) tensor = tensor.to(device);
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

Result<void> check_identity(const std::map<std::string, std::string>& metadata, const ModelSpec& model,
                            const TrainSpec& train) {
  for (const auto& [key, expected] : identity(model, train)) {
    const auto found = metadata.find(key);
    if (found != metadata.end() && found->second == expected) continue;
    return fail(ErrorCode::kInvalid, text("the checkpoint is not of this training: ", key, " is ",
                                          found == metadata.end() ? "missing" : found->second, " where ",
                                          expected, " is expected"));
  }
  return {};
}

template <class Number>
Result<Number> number_of(const std::map<std::string, std::string>& metadata, const char* key) {
  if (const auto number = storage::number_in<Number>(metadata, key)) return *number;
  return fail(ErrorCode::kCorrupt, text("the checkpoint does not say its ", key));
}

at::Tensor global_norm(const std::vector<at::Tensor>& tensors) {
  return at::linalg_vector_norm(at::stack(at::_foreach_norm(tensors)), 2);
}

}  // namespace

TrainState initial_state(const ModelSpec& model, const TrainSpec& train, torch::Device device) {
  return state_of(initial_weights(model, train.seed, train.expert, train.attempt), device);
}

TrainState state_of(std::vector<at::Tensor> weights, torch::Device device) {
  TrainState state;
  state.raw = std::move(weights);
  move_to(state.raw, device);
  for (const at::Tensor& tensor : state.raw) state.ema.push_back(tensor.clone());
  state.m = zeros_like(state.raw);
  state.v = zeros_like(state.raw);
  return state;
}

Result<TrainState> load_state(const storage::Safetensors& checkpoint, const ModelSpec& model,
                              const TrainSpec& train, torch::Device device) {
  const auto& metadata = checkpoint.header().metadata;
  TRY(check_identity(metadata, model, train));
  TrainState state;
  ASSIGN_OR_RETURN(state.step, number_of<std::uint64_t>(metadata, "step"));
  for (const auto& [prefix, tensors] : {std::pair{"ema/", &state.ema}, std::pair{"raw/", &state.raw},
                                        std::pair{"m/", &state.m}, std::pair{"v/", &state.v}}) {
    ASSIGN_OR_RETURN(*tensors, load_weights(checkpoint, prefix, model));
    move_to(*tensors, device);
  }
  return state;
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
  for (const auto& [prefix, values] : {std::pair{"ema/", &state.ema}, std::pair{"raw/", &state.raw},
                                       std::pair{"m/", &state.m}, std::pair{"v/", &state.v}}) {
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const at::Tensor& tensor = (*values)[i];
      tensors.push_back({.name = prefix + shapes[i].name,
                         .shape = {shapes[i].shape.begin(), shapes[i].shape.end()},
                         .copy = [&tensor](char* destination) {
                           at::from_blob(destination, tensor.sizes(), at::kFloat).copy_(tensor);
                         }});
    }
  }
  return tensors;
}

std::map<std::string, std::string> snapshot_metadata(const TrainState& state, const ModelSpec& model,
                                                     const TrainSpec& train, const std::string& fingerprint) {
  auto metadata = identity(model, train);
  metadata["step"] = text(state.step);
  metadata["attempt"] = text(train.attempt);
  metadata["fingerprint"] = fingerprint;
  return metadata;
}

std::optional<std::string> first_non_finite(const TrainState& state, const ModelSpec& model) {
  const std::vector<ParameterShape> shapes = parameter_shapes(model);
  for (const auto& [prefix, values] : {std::pair{"raw/", &state.raw}, std::pair{"m/", &state.m},
                                       std::pair{"v/", &state.v}, std::pair{"ema/", &state.ema}}) {
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      if (!(*values)[i].isfinite().all().item<bool>()) return prefix + shapes[i].name;
    }
  }
  return std::nullopt;
}

double apply_gradients(TrainState& state, std::vector<at::Tensor>& gradients, const TrainSpec& train) {
  const at::NoGradGuard no_grad;
  const at::Tensor norm = global_norm(gradients);
  if (train.clip > 0) at::_foreach_mul_(gradients, at::clamp_max(train.clip / (norm + kClipEpsilon), 1.0));
  const auto count =
      at::full({}, static_cast<double>(state.step + 1), state.raw[0].options().requires_grad(false));
  const std::vector<at::Tensor> counts(state.raw.size(), count);
  at::_fused_adamw_(state.raw, gradients, state.m, state.v, {}, counts, learning_rate_at(train, state.step),
                    kBeta1, kBeta2, train.weight_decay, kEpsilon, /*amsgrad=*/false, /*maximize=*/false);
  at::_foreach_lerp_(state.ema, state.raw, 1 - ema_decay_at(train, state.step));
  ++state.step;
  return norm.item<double>();
}

}  // namespace skerry::diffusion
