// SPDX-License-Identifier: Apache-2.0
#include "diffusion/model/pretrained.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "base/text.h"
#include "diffusion/model/dit_to_pixart.h"
#include "diffusion/runtime/device.h"
#include "diffusion/sample/ensemble_index.h"
#include "model/shapes.h"
#include "storage/files.h"
#include "storage/safetensors.h"

namespace skerry::diffusion {
namespace {

using storage::DType;
using Weights = NamedWeights;

// A later conversion of the result finds by it that there is nothing to do.
const std::string kFlowScheduler =
    R"({"_class_name": "FlowMatchEulerDiscreteScheduler", "num_train_timesteps": 1000})"
    "\n";
constexpr double kRidge = 1e-3;         // of the least squares
constexpr std::int64_t kFitted = 2000;  // times
constexpr double kLastTime = 0.9937;    // of a flow: about the last step of DDPM

// The name of a tensor in block 0, whose embedders all blocks of a DiT repeat.
std::string trained_name(const std::string& name) {
  const std::size_t at = name.find(".norm1.emb.");
  return at == std::string::npos ? name : kDitEmbedder + name.substr(at + 11);
}

Result<at::Tensor> read(const storage::Safetensors& file, const storage::TensorInfo& info) {
  const at::ScalarType type = info.dtype == DType::kF16    ? at::kHalf
                              : info.dtype == DType::kBF16 ? at::kBFloat16
                                                           : at::kFloat;
  if (type == at::kFloat && info.dtype != DType::kF32) {
    return fail(ErrorCode::kInvalid, text(info.name, ": expected F32, F16 or BF16, found ",
                                          storage::name_of(info.dtype)));
  }
  const at::Tensor tensor =
      at::empty(std::vector<std::int64_t>(info.shape.begin(), info.shape.end()), type);
  const std::string_view data = file.view(info).data;
  std::memcpy(tensor.data_ptr(), data.data(), data.size());
  return tensor.to(at::kFloat);
}

Result<Weights> read_all(const std::string& folder) {
  ASSIGN_OR_RETURN(const std::vector<std::string> paths, weights_files(folder));
  Weights weights;
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(const storage::Safetensors file, storage::Safetensors::open(path));
    for (const storage::TensorInfo& info : file.header().tensors) {
      if (info.name == "pos_embed.pos_embed") continue;  // computed from the shape
      Result<at::Tensor> tensor = read(file, info);
      if (!tensor) return fail(tensor.error().code, text(path, ": ", tensor.error().message));
      weights.emplace(info.name, std::move(*tensor));
    }
  }
  return weights;
}

// Rows are ordered (row in patch, column in patch, channel); of each place the
// first half is kept.
void leave_variance_out(const ModelSpec& model, const std::string& head, Weights& weights) {
  const std::int64_t channels = model.channels;
  for (const char* part : {".weight", ".bias"}) {
    at::Tensor& rows = weights.at(head + part);
    std::vector<std::int64_t> shape = rows.sizes().vec();
    shape[0] /= 2;
    rows = rows.view({-1, 2 * channels, rows.numel() / rows.size(0)})
               .narrow(1, 0, channels)
               .reshape(shape)
               .contiguous();
  }
}

Result<void> check(const std::string& folder, const PretrainedConfig& config,
                   const std::string& head, const Weights& weights) {
  std::map<std::string, std::vector<std::int64_t>> expected;
  for (const ParameterShape& parameter : parameter_shapes(config.model)) {
    std::vector<std::int64_t> shape = parameter.shape;
    if (parameter.name.starts_with(head + "."))
      shape[0] = shape[0] / config.model.channels * config.out_channels;
    expected.emplace(parameter.name, shape);
  }
  const auto differs = [&](const std::string& what) {
    return fail(ErrorCode::kInvalid,
                text("the weights in ", folder, " are not as its config.json says: ", what));
  };
  for (const auto& [name, shape] : expected) {
    const auto found = weights.find(name);
    if (found == weights.end()) return differs(text(name, " is missing"));
    if (found->second.sizes() != at::IntArrayRef(shape))
      return differs(
          text(name, " is ", found->second.sizes(), ", expected ", at::IntArrayRef(shape)));
  }
  for (const auto& [name, tensor] : weights) {
    const auto trained = expected.find(trained_name(name));
    if (trained == expected.end()) return differs(text(name, " is no part of it"));
    if (trained->first != name && !at::equal(tensor, weights.at(trained->first)))
      return differs(text(name, " differs from that of block 0: runs train one for all blocks"));
  }
  return {};
}

// RETURNS: [n] the steps of DDPM with the noise of a flow's times t [n] in
// [0,1), where σ/α = t/(1 − t). Between steps it is linear.
at::Tensor steps_of_equal_noise(const DdpmSchedule& schedule, const at::Tensor& t) {
  const at::Tensor signal = at::cumprod(1 - torch::tensor(schedule.betas, at::kDouble), 0);
  const at::Tensor ratio = ((1 - signal) / signal).sqrt();  // [steps], grows
  const at::Tensor wanted = t / (1 - t);
  const at::Tensor above =
      at::searchsorted(ratio, wanted).clamp(1, static_cast<std::int64_t>(ratio.size(0)) - 1);
  const at::Tensor low = ratio.index_select(0, above - 1), high = ratio.index_select(0, above);
  return above.to(at::kDouble) - 1 + ((wanted - low) / (high - low)).clamp(0, 1);
}

// A time embedder, and what the slowest of its frequencies is divided by.
struct TimeEmbedder {
  std::string prefix;
  double slowest;
};

// Fits the last layer of `as`; its first one is that of `was`. It then embeds a
// flow's t as `was` embedded the step of equal noise, plus `added` [W].
void fit_time_embedder(const std::optional<DdpmSchedule>& schedule, const TimeEmbedder& was,
                       const TimeEmbedder& as, const at::Tensor& added, Weights& weights) {
  const at::Tensor t = at::linspace(0, kLastTime, kFitted, at::kDouble);
  const at::Tensor steps = schedule ? steps_of_equal_noise(*schedule, t) : 1000 * t;
  const at::Tensor wanted = embed_steps(weights, was.prefix, steps, was.slowest) + added;
  const at::Tensor hidden = hidden_steps(weights, was.prefix, 1000 * t, as.slowest);
  const at::Tensor rows = at::cat({hidden, at::ones({kFitted, 1}, at::kDouble)}, 1);  // [n, W + 1]
  const at::Tensor square = rows.t().mm(rows) + kRidge * at::eye(rows.size(1), at::kDouble);
  const at::Tensor found = at::linalg_solve(square, rows.t().mm(wanted));  // [W + 1, W]
  for (const char* part : {"linear_1.weight", "linear_1.bias"})
    weights[as.prefix + part] = weights.at(was.prefix + part);
  weights[as.prefix + "linear_2.weight"] = found.slice(0, 0, -1).t().to(at::kFloat).contiguous();
  weights[as.prefix + "linear_2.bias"] = found.slice(0, -1).squeeze(0).to(at::kFloat).contiguous();
}

Result<void> write(const std::string& output, const std::string& config, const Weights& weights) {
  std::error_code error;
  std::filesystem::create_directories(output, error);
  if (error) return fail(ErrorCode::kIo, text("cannot make ", output, ": ", error.message()));
  std::vector<storage::TensorView> views;
  for (const auto& [name, tensor] : weights) {
    views.push_back({name,
                     DType::kF32,
                     {tensor.sizes().begin(), tensor.sizes().end()},
                     {static_cast<const char*>(tensor.data_ptr()), tensor.nbytes()}});
  }
  for (const auto& [name, content] :
       {std::pair{"/config.json", config}, {"/scheduler_config.json", kFlowScheduler}}) {
    ASSIGN_OR_RETURN(storage::PartialFile file, storage::PartialFile::create(output + name));
    TRY(file.append(content));
    TRY(file.commit());
  }
  return storage::write_safetensors(output + "/diffusion_pytorch_model.safetensors", views,
                                    {{"format", "pt"}});
}

}  // namespace

Result<Converted> convert_pretrained(const std::string& folder, const std::string& output,
                                     InitObjective objective, std::uint32_t caption_dim) {
  return guarded([&]() -> Result<Converted> {
    const at::NoGradGuard no_grad;
    ASSIGN_OR_RETURN(const PretrainedConfig config, read_pretrained_config(folder));
    const bool was_pixart = config.model.is_pixart();
    if (was_pixart && caption_dim > 0 && caption_dim != config.model.caption_dim) {
      return fail(ErrorCode::kInvalid,
                  text("the weights in ", folder, " read captions of ", config.model.caption_dim,
                       " numbers a token, expected ", caption_dim));
    }
    ASSIGN_OR_RETURN(const std::optional<DdpmSchedule> ddpm, schedule_of(folder, objective));
    ASSIGN_OR_RETURN(Weights weights, read_all(folder));
    const std::string head = was_pixart ? "proj_out" : "proj_out_2";
    TRY(check(folder, config, head, weights));
    const bool gains_captions = !was_pixart && caption_dim > 0;
    const PretrainedConfig made = gains_captions ? with_captions(config, caption_dim) : config;
    const Converted converted{.model = made.model,
                              .was_ddpm = ddpm.has_value(),
                              .had_variance = config.out_channels != config.model.channels};
    if (converted.had_variance) leave_variance_out(config.model, head, weights);
    const TimeEmbedder dit{kDitEmbedder + "timestep_embedder.", kDitSlowest};
    const TimeEmbedder pixart{"adaln_single.emb.timestep_embedder.", kPixartSlowest};
    if (ddpm || gains_captions) {
      fit_time_embedder(ddpm, was_pixart ? pixart : dit, made.model.is_pixart() ? pixart : dit,
                        gains_captions ? null_label(weights) : at::zeros({}), weights);
    }
    if (gains_captions) {
      weights = dit_to_pixart(weights, made.model);
    } else {
      for (auto& [name, tensor] : weights) tensor = weights.at(trained_name(name));
    }
    TRY(write(output, made.json, weights));
    return converted;
  });
}

}  // namespace skerry::diffusion
