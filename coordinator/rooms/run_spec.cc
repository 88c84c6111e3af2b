// SPDX-License-Identifier: Apache-2.0
#include "coordinator/rooms/run_spec.h"

#include <cmath>

#include "base/text.h"
#include "protocol/limits.h"

namespace skerry::coordinator {
namespace {

struct Preset {
  const char* name;
  std::uint32_t width, depth, heads;
};
// DiT, Peebles and Xie 2022, table 1.
constexpr Preset kPresets[] = {
    {"S", 384, 12, 6}, {"B", 768, 12, 12}, {"L", 1024, 24, 16}, {"XL", 1152, 28, 16}};

constexpr std::uint32_t kMaxWidth = 16384;
constexpr std::uint32_t kMaxDepth = 256;

Error invalid(const std::string& what) { return fail(ErrorCode::kInvalid, what); }

Result<void> apply_preset(const std::string& name, pb::ModelSpec& model) {
  const std::size_t slash = name.find('/');
  const std::string size = name.substr(0, slash);
  const std::string patch = slash == std::string::npos ? "" : name.substr(slash + 1);
  for (const Preset& preset : kPresets) {
    if (size != preset.name || (patch != "2" && patch != "4" && patch != "8")) continue;
    model.set_width(preset.width);
    model.set_depth(preset.depth);
    model.set_heads(preset.heads);
    model.set_patch_size(static_cast<std::uint32_t>(patch[0] - '0'));
    return {};
  }
  return invalid(text("model.preset \"", name, "\" is not one of S, B, L, XL with /2, /4 or /8"));
}

Result<void> check_train(const pb::TrainSpec& train) {
  if (train.steps() == 0 || train.steps() > protocol::kSteps)
    return invalid(text("train.steps must be 1 to ", protocol::kSteps));
  if (train.batch_size() == 0 || train.batch_size() > 1'000'000)
    return invalid("train.batch_size must be 1 to 1000000");
  if (!std::isfinite(train.learning_rate()) || train.learning_rate() <= 0)
    return invalid("train.learning_rate must be above 0");
  if (!(train.ema() >= 0 && train.ema() < 1))
    return invalid("train.ema must be 0 or more and below 1");
  if (!(train.label_dropout() >= 0 && train.label_dropout() <= 1))
    return invalid("train.label_dropout must be 0 to 1");
  if (!(train.clip() >= 0) || !std::isfinite(train.clip()))
    return invalid("train.clip must be 0 (off) or above");
  if (!(train.weight_decay() >= 0) || !std::isfinite(train.weight_decay()))
    return invalid("train.weight_decay must be 0 or above");
  if (train.schedule() == pb::SCHEDULE_CYCLIC && train.cycle_steps() == 0)
    return invalid("train.schedule \"cyclic\" needs train.cycle_steps of 1 or more");
  if (train.precision() != "fp32" && train.precision() != "bf16")
    return invalid(
        text("train.precision \"", train.precision(), "\" is not known: use \"fp32\" or \"bf16\""));
  return {};
}

Result<void> check_rest(const pb::RunSpec& spec) {
  if (spec.name().empty()) return invalid("the run needs a name");
  if (!spec.architecture().empty() && spec.architecture() != "dit" &&
      spec.architecture() != "pixart") {
    return invalid(text("model.architecture \"", spec.architecture(),
                        "\" is not known: use \"dit\" or \"pixart\", or leave it out"));
  }
  if (spec.router_kind() != "analytic" && spec.router_kind() != "learned") {
    return invalid(text("router.kind \"", spec.router_kind(),
                        "\" is not known: use \"analytic\" or \"learned\""));
  }
  if (spec.round_steps() == 0 &&
      !(spec.round_seconds() > 0 && std::isfinite(spec.round_seconds()))) {
    return invalid("checkpoint.round_seconds must be above 0, or checkpoint.round_steps given");
  }
  if (spec.keep() == 0 || spec.keep() > 1000) return invalid("checkpoint.keep must be 1 to 1000");
  if (spec.copies() == 0 || spec.copies() > protocol::kCopies)
    return invalid(text("checkpoint.copies must be 1 to ", protocol::kCopies));
  const std::uint32_t cards = spec.cards_per_expert();
  if (cards > 1 && spec.train().batch_size() % cards != 0) {
    return invalid(text("schedule.cards_per_expert must divide train.batch_size ",
                        spec.train().batch_size(), ", and ", cards, " does not"));
  }
  return {};
}

}  // namespace

Result<void> check_spec(const pb::RunSpec& spec) {
  TRY(check_rest(spec));
  return check_train(spec.train());
}

Result<pb::ModelSpec> model_for(const pb::RunSpec& spec, const pb::DatasetAdd& content) {
  pb::ModelSpec model;
  model.set_image_size(content.image_size());
  model.set_channels(content.channels());
  model.set_classes(static_cast<std::uint32_t>(content.classes_size()));
  const bool free =
      spec.width() > 0 || spec.depth() > 0 || spec.heads() > 0 || spec.patch_size() > 0;
  if (spec.preset().empty()) {
    model.set_width(spec.width());
    model.set_depth(spec.depth());
    model.set_heads(spec.heads());
    model.set_patch_size(spec.patch_size());
  } else {
    if (free) return invalid("model has a preset or width, depth, heads and patch_size, not both");
    TRY(apply_preset(spec.preset(), model));
  }
  if (model.width() == 0 || model.width() > kMaxWidth || model.depth() == 0 ||
      model.depth() > kMaxDepth) {
    return invalid(
        text("model.width must be 1 to ", kMaxWidth, " and model.depth 1 to ", kMaxDepth));
  }
  if (model.heads() == 0 || model.width() % model.heads() != 0) {
    return invalid(
        text("model.width ", model.width(), " must be a multiple of model.heads ", model.heads()));
  }
  const bool has_text = content.caption_dim() > 0;
  if (spec.architecture() == "pixart" && !has_text) {
    return invalid(text("model.architecture \"pixart\" reads captions, and the dataset ",
                        content.name(), " has none: leave it out, or add a dataset with text"));
  }
  const bool pixart = has_text && spec.architecture() != "dit";
  if (!pixart && spec.interpolation_scale() != 0)
    return invalid("model.interpolation_scale is of a pixart's positions: leave it out of a dit");
  if (pixart) {
    model.set_caption_dim(content.caption_dim());
    model.set_caption_tokens(content.caption_tokens());
    model.set_interpolation_scale(spec.interpolation_scale());
  }
  if (model.patch_size() == 0 || content.image_size() % model.patch_size() != 0) {
    return invalid(text("images of ", content.image_size(),
                        " pixels cannot be cut into patches of ", model.patch_size(),
                        ": model.patch_size must divide the image size"));
  }
  return model;
}

}  // namespace skerry::coordinator
