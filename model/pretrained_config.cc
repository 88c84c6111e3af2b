// SPDX-License-Identifier: Apache-2.0
#include "model/pretrained_config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/text.h"

namespace skerry {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::uint32_t kMostSteps = 100'000;

// A null or missing value is the default, as in diffusers.
template <class Value>
Value value_of(const Json& json, const char* key, Value otherwise) {
  const auto found = json.find(key);
  return found == json.end() || found->is_null() ? otherwise : found->get<Value>();
}

Result<Json> read_object(const std::string& path) {
  std::ifstream file(path);
  if (!file) return fail(ErrorCode::kNotFound, text("cannot read ", path));
  Json json = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return fail(ErrorCode::kInvalid, text(path, " is not a JSON object"));
  return json;
}

Error unknown(const std::string& path, std::string_view key, std::string_view expected,
              const Json& found) {
  return fail(ErrorCode::kInvalid,
              text(path, ": ", key, ": expected ", expected, ", found ", found.dump()));
}

Result<bool> is_pixart(const std::string& path, const Json& json) {
  const auto name = value_of<std::string>(json, "_class_name", "");
  const auto norm = value_of<std::string>(json, "norm_type", "");
  const bool old = name == "Transformer2DModel";
  if (name == "PixArtTransformer2DModel" || (old && norm == "ada_norm_single")) return true;
  if (name == "DiTTransformer2DModel" || (old && norm == "ada_norm_zero")) return false;
  return unknown(path, "_class_name",
                 "DiTTransformer2DModel, PixArtTransformer2DModel, or a Transformer2DModel with "
                 "norm_type ada_norm_zero or ada_norm_single",
                 name);
}

Result<void> add_captions(const std::string& path, const Json& json, std::uint32_t size,
                          ModelSpec& model) {
  if (value_of(json, "use_additional_conditions", size == 128)) {
    return unknown(path, "use_additional_conditions",
                   "false: runs do not train micro-conditions on size and aspect ratio",
                   json.value("use_additional_conditions", Json()));
  }
  model.caption_dim = value_of(json, "caption_channels", 0U);
  if (model.caption_dim == 0)
    return unknown(path, "caption_channels", "the numbers of a caption's token", Json());
  model.interpolation_scale = value_of(json, "interpolation_scale", std::max<double>(size / 64, 1));
  return {};
}

Result<PretrainedConfig> parse(const std::string& path, Json json) try {
  ASSIGN_OR_RETURN(const bool pixart, is_pixart(path, json));
  PretrainedConfig config;
  ModelSpec& model = config.model;
  model.image_size = value_of(json, "sample_size", 32U);
  model.channels = value_of(json, "in_channels", 4U);
  model.patch_size = value_of(json, "patch_size", 2U);
  model.heads = value_of(json, "num_attention_heads", 16U);
  model.width = model.heads * value_of(json, "attention_head_dim", 72U);
  model.depth = value_of(json, "num_layers", 28U);
  if (pixart) {
    TRY(add_captions(path, json, model.image_size, model));
  } else {
    model.classes = value_of(json, "num_embeds_ada_norm", 1000U);
  }
  TRY(validate(model));
  config.out_channels = value_of(json, "out_channels", model.channels);
  if (config.out_channels != model.channels && config.out_channels != 2 * model.channels)
    return unknown(path, "out_channels",
                   text(model.channels, ", or twice that with a learned variance"),
                   config.out_channels);
  json["_class_name"] = pixart ? "PixArtTransformer2DModel" : "DiTTransformer2DModel";
  json["out_channels"] = model.channels;
  json["norm_eps"] = 1e-6;
  config.json = json.dump(2) + "\n";
  return config;
} catch (const Json::exception& error) {
  return fail(ErrorCode::kInvalid, text(path, ": ", error.what()));
}

Result<std::optional<DdpmSchedule>> parse_schedule_of(const std::string& path,
                                                      const Json& json) try {
  const auto predicts = value_of<std::string>(json, "prediction_type", "epsilon");
  const auto name = value_of<std::string>(json, "_class_name", "");
  if (name.starts_with("FlowMatch") || predicts == "flow_prediction") return std::nullopt;
  if (predicts != "epsilon" && predicts != "v_prediction")
    return unknown(path, "prediction_type", "epsilon, v_prediction or flow_prediction", predicts);
  const auto steps = value_of(json, "num_train_timesteps", 1000U);
  if (steps < 2 || steps > kMostSteps)
    return unknown(path, "num_train_timesteps", text("2 to ", kMostSteps), steps);
  const auto kind = value_of<std::string>(json, "beta_schedule", "linear");
  if (kind != "linear" && kind != "scaled_linear")
    return unknown(path, "beta_schedule", "linear or scaled_linear", kind);
  const bool scaled = kind == "scaled_linear";
  double first = value_of(json, "beta_start", 1e-4), last = value_of(json, "beta_end", 0.02);
  if (!(first > 0 && first <= last && last < 1))
    return unknown(path, "beta_end", "betas that grow between 0 and 1", last);
  if (scaled) {
    first = std::sqrt(first);
    last = std::sqrt(last);
  }
  DdpmSchedule schedule;
  for (std::uint32_t i = 0; i < steps; ++i) {
    const double beta = first + (last - first) * i / (steps - 1);
    schedule.betas.push_back(scaled ? beta * beta : beta);
  }
  return schedule;
} catch (const Json::exception& error) {
  return fail(ErrorCode::kInvalid, text(path, ": ", error.what()));
}

}  // namespace

Result<PretrainedConfig> read_pretrained_config(const std::string& folder) {
  const std::string path = folder + "/config.json";
  ASSIGN_OR_RETURN(Json json, read_object(path));
  return parse(path, std::move(json));
}

Result<std::optional<DdpmSchedule>> read_ddpm_schedule(const std::string& folder) {
  for (const char* place : {"/scheduler_config.json", "/../scheduler/scheduler_config.json"}) {
    const std::string path = folder + place;
    std::error_code error;
    if (!std::filesystem::exists(path, error)) continue;
    ASSIGN_OR_RETURN(const Json json, read_object(path));
    return parse_schedule_of(path, json);
  }
  return std::nullopt;
}

PretrainedConfig with_captions(const PretrainedConfig& dit, std::uint32_t dim) {
  PretrainedConfig config = dit;
  config.model.classes = 0;
  config.model.caption_dim = dim;
  config.model.interpolation_scale = 1;
  Json json = Json::parse(dit.json);
  json["_class_name"] = "PixArtTransformer2DModel";
  json["norm_type"] = "ada_norm_single";
  json["num_embeds_ada_norm"] = 1000;
  json["attention_type"] = "default";
  json["caption_channels"] = dim;
  json["cross_attention_dim"] = config.model.width;
  json["interpolation_scale"] = 1.0;
  json["use_additional_conditions"] = false;
  config.json = json.dump(2) + "\n";
  return config;
}

Result<InitObjective> parse_init_objective(std::string_view name) {
  if (name == "auto") return InitObjective::kByScheduler;
  if (name == "flow") return InitObjective::kFlow;
  if (name == "epsilon") return InitObjective::kEpsilon;
  return fail(ErrorCode::kInvalid,
              text("expected an objective auto, flow or epsilon, found '", name, "'"));
}

Result<std::optional<DdpmSchedule>> schedule_of(const std::string& folder,
                                                InitObjective objective) {
  if (objective == InitObjective::kFlow) return std::nullopt;
  ASSIGN_OR_RETURN(std::optional<DdpmSchedule> schedule, read_ddpm_schedule(folder));
  if (objective == InitObjective::kEpsilon && !schedule)
    return parse_schedule_of("", Json::object());
  return schedule;
}

}  // namespace skerry
