// SPDX-License-Identifier: Apache-2.0
#include "model/spec.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "base/text.h"

namespace skerry {
namespace {

struct Preset {
  std::string_view name;
  std::uint32_t width, depth, heads;
};
constexpr std::array kPresets{Preset{"S", 384, 12, 6}, Preset{"B", 768, 12, 12},
                              Preset{"L", 1024, 24, 16}, Preset{"XL", 1152, 28, 16}};

constexpr std::uint32_t kLargestImage = 4096;
constexpr std::uint32_t kLargestWidth = 16384;
constexpr std::uint32_t kLargestDepth = 512;
constexpr std::uint32_t kLargestBatch = 65536;
constexpr std::uint32_t kMostClasses = 1 << 20;
constexpr std::uint32_t kMostExperts = 1024;
constexpr std::uint32_t kMostCaptionDim = 1 << 16;
constexpr std::uint32_t kMostCaptionTokens = 1 << 16;
constexpr std::uint32_t kMostThreads = 1024;
constexpr std::uint32_t kMostCards = 64;

Error out_of_range(std::string_view name, double found, double low, double high) {
  return fail(ErrorCode::kInvalid,
              text(name, " must be between ", low, " and ", high, ", found ", found));
}

Result<void> check(std::string_view name, double value, double low, double high) {
  if (!(value >= low && value <= high)) return out_of_range(name, value, low, high);
  return {};
}

template <class Enum>
Result<Enum> parse_name(std::string_view expected, std::string_view name,
                        std::initializer_list<Enum> known) {
  for (const Enum value : known) {
    if (name == to_string(value)) return value;
  }
  return fail(ErrorCode::kInvalid, text("expected ", expected, ", found '", name, "'"));
}

}  // namespace

Result<ModelSpec> model_preset(std::string_view name) {
  const auto slash = name.find('/');
  const std::string_view patch = slash == std::string_view::npos ? "" : name.substr(slash + 1);
  for (const Preset& preset : kPresets) {
    if (name.substr(0, slash) != preset.name || (patch != "2" && patch != "4" && patch != "8"))
      continue;
    ModelSpec model;
    model.width = preset.width;
    model.depth = preset.depth;
    model.heads = preset.heads;
    model.patch_size = static_cast<std::uint32_t>(patch[0] - '0');
    return model;
  }
  return fail(
      ErrorCode::kInvalid,
      text("expected a model preset S, B, L or XL with patch size 2, 4 or 8, such as S/2, found '",
           name, "'"));
}

Result<void> validate(const ModelSpec& model) {
  TRY(check("image_size", model.image_size, 1, kLargestImage));
  TRY(check("channels", model.channels, 1, 64));
  TRY(check("patch_size", model.patch_size, 1, model.image_size));
  TRY(check("width", model.width, 4, kLargestWidth));
  TRY(check("depth", model.depth, 1, kLargestDepth));
  TRY(check("heads", model.heads, 1, model.width));
  TRY(check("classes", model.classes, 0, kMostClasses));
  TRY(check("router_experts", model.router_experts, 0, kMostExperts));
  TRY(check("caption_dim", model.caption_dim, 0, kMostCaptionDim));
  TRY(check("interpolation_scale", model.interpolation_scale, 1.0 / 64, 64));
  TRY(check("caption_tokens", model.caption_tokens, 0, kMostCaptionTokens));
  if (model.router_experts > 0 && model.is_pixart())
    return fail(ErrorCode::kInvalid, "a router reads no captions: expected caption_dim 0");
  if (model.image_size % model.patch_size != 0) {
    return fail(ErrorCode::kInvalid, text("patch_size must divide image_size, found ",
                                          model.patch_size, " and ", model.image_size));
  }
  if (model.width % model.heads != 0 || model.width % 4 != 0) {
    return fail(ErrorCode::kInvalid,
                text("width must be a multiple of heads and of 4, found width ", model.width,
                     " and heads ", model.heads));
  }
  return {};
}

Result<Architecture> parse_architecture(std::string_view name) {
  return parse_name("an architecture auto, dit or pixart", name,
                    {Architecture::kByDataset, Architecture::kDit, Architecture::kPixart});
}

const char* to_string(Architecture architecture) {
  switch (architecture) {
    case Architecture::kDit:
      return "dit";
    case Architecture::kPixart:
      return "pixart";
    case Architecture::kByDataset:
      break;
  }
  return "auto";
}

Result<bool> reads_captions(Architecture architecture, bool dataset_has_text) {
  if (architecture == Architecture::kPixart && !dataset_has_text) {
    return fail(ErrorCode::kInvalid,
                "a pixart reads captions, and the dataset has none: expected a dataset with text, "
                "or the architecture dit");
  }
  return dataset_has_text && architecture != Architecture::kDit;
}

Result<Schedule> parse_schedule(std::string_view name) {
  return parse_name("a schedule constant, linear, cosine or cyclic", name,
                    {Schedule::kConstant, Schedule::kLinear, Schedule::kCosine, Schedule::kCyclic});
}

const char* to_string(Schedule schedule) {
  switch (schedule) {
    case Schedule::kLinear:
      return "linear";
    case Schedule::kCosine:
      return "cosine";
    case Schedule::kCyclic:
      return "cyclic";
    case Schedule::kConstant:
      break;
  }
  return "constant";
}

Result<TimeDistribution> parse_time_distribution(std::string_view name) {
  return parse_name("a distribution of t uniform or lognormal", name,
                    {TimeDistribution::kUniform, TimeDistribution::kLogNormal});
}

const char* to_string(TimeDistribution distribution) {
  return distribution == TimeDistribution::kLogNormal ? "lognormal" : "uniform";
}

Result<KernelChoice> parse_kernel_choice(std::string_view name) {
  return parse_name("kernels reference or fast", name,
                    {KernelChoice::kReference, KernelChoice::kFast});
}

const char* to_string(KernelChoice kernels) {
  return kernels == KernelChoice::kFast ? "fast" : "reference";
}

Result<StateForm> parse_state_form(std::string_view name) {
  return parse_name("a state full or lean", name, {StateForm::kFull, StateForm::kLean});
}

const char* to_string(StateForm state) { return state == StateForm::kLean ? "lean" : "full"; }

Result<void> validate(const TrainSpec& train) {
  TRY(check("steps", static_cast<double>(train.steps), 1, 1e9));
  TRY(check("batch_size", train.batch_size, 1, kLargestBatch));
  TRY(check("micro_batch", train.micro_batch, 0, kLargestBatch));
  TRY(check("learning_rate", train.learning_rate, 1e-9, 1));
  TRY(check("warmup_steps", static_cast<double>(train.warmup_steps), 0,
            static_cast<double>(train.steps)));
  if (train.schedule == Schedule::kCyclic) {
    TRY(check("cycle_steps", static_cast<double>(train.cycle_steps), 1, 1e9));
  }
  TRY(check("clip", train.clip, 0, 1e9));
  TRY(check("ema", train.ema, 0, 0.999999999));
  TRY(check("label_dropout", train.label_dropout, 0, 1));
  TRY(check("weight_decay", train.weight_decay, 0, 10));
  TRY(check("threads", train.threads, 1, kMostThreads));
  TRY(check("cards", train.cards, 1, kMostCards));
  if (train.precision != "fp32" && train.precision != "bf16") {
    return fail(ErrorCode::kInvalid,
                text("precision must be fp32 or bf16, found '", train.precision, "'"));
  }
  return {};
}

std::uint32_t rows_at_a_time(const TrainSpec& train) {
  return train.micro_batch == 0 ? train.batch_size : std::min(train.micro_batch, train.batch_size);
}

double learning_rate_at(const TrainSpec& train, std::uint64_t step) {
  if (step < train.warmup_steps) {
    return train.learning_rate * static_cast<double>(step + 1) /
           static_cast<double>(train.warmup_steps);
  }
  if (train.schedule == Schedule::kConstant || train.steps <= train.warmup_steps)
    return train.learning_rate;
  const bool cyclic = train.schedule == Schedule::kCyclic;
  const std::uint64_t after = step - train.warmup_steps;
  const double span =
      static_cast<double>(cyclic ? train.cycle_steps : train.steps - train.warmup_steps);
  const double done =
      std::min(1.0, static_cast<double>(cyclic ? after % train.cycle_steps : after) / span);
  if (train.schedule == Schedule::kLinear) return train.learning_rate * (1 - done);
  return train.learning_rate * 0.5 * (1 + std::cos(std::numbers::pi * done));
}

double ema_decay_at(const TrainSpec& train, std::uint64_t step) {
  const double s = static_cast<double>(step);
  return std::min(train.ema, (1 + s) / (10 + s));
}

}  // namespace skerry
