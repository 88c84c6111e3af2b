// SPDX-License-Identifier: Apache-2.0
// run.toml's ranges; every message names the key as the file does.
#include <charconv>

#include "protocol/fields.h"
#include "protocol/limits.h"
#include "protocol/validate.h"

namespace skerry::protocol {
namespace {

using namespace fields;

bool is_preset(std::string_view preset) {
  const auto slash = preset.find('/');
  if (slash == std::string_view::npos) return false;
  const std::string_view size = preset.substr(0, slash);
  const std::string_view patch = preset.substr(slash + 1);
  if (size != "S" && size != "B" && size != "L" && size != "XL") return false;
  return patch == "1" || patch == "2" || patch == "4" || patch == "8" || patch == "16";
}

Result<void> validate_shape(const pb::RunSpec& spec) {
  const bool any =
      spec.width() != 0 || spec.depth() != 0 || spec.heads() != 0 || spec.patch_size() != 0;
  if (!spec.preset().empty()) {
    if (any)
      return bad("model.preset", "either a preset or width, depth, heads and patch_size", "both");
    if (is_preset(spec.preset())) return {};
    return bad("model.preset",
               "S, B, L or XL, a slash and a patch size of 1, 2, 4, 8 or 16, as in \"S/2\"",
               text('"', spec.preset().substr(0, 16), '"'));
  }
  if (!any)
    return bad("model.preset", "a preset, or width, depth, heads and patch_size", "neither");
  TRY(in_range<std::uint32_t>("model.width", spec.width(), 8, 8192));
  TRY(in_range<std::uint32_t>("model.depth", spec.depth(), 1, 128));
  TRY(in_range<std::uint32_t>("model.heads", spec.heads(), 1, 128));
  TRY(in_range<std::uint32_t>("model.patch_size", spec.patch_size(), 1, 64));
  if (spec.width() % spec.heads() == 0) return {};
  return bad("model.heads", text("a divisor of width ", spec.width()), text(spec.heads()));
}

Result<void> validate_checkpoint(const pb::RunSpec& spec) {
  TRY(in_range<std::uint64_t>("checkpoint.round_steps", spec.round_steps(), 0, kSteps));
  if (spec.round_steps() == 0)
    TRY(in_range("checkpoint.round_seconds", spec.round_seconds(), 0.01, 86400.0));
  TRY(finite("checkpoint.round_seconds", spec.round_seconds()));
  TRY(in_range<std::uint32_t>("checkpoint.offline_rounds", spec.offline_rounds(), 0, 100'000));
  TRY(in_range<std::uint32_t>("checkpoint.copies", spec.copies(), 1, kCopies));
  return in_range<std::uint32_t>("checkpoint.keep", spec.keep(), 1, 1000);
}

Result<void> validate_budget(const pb::RunSpec& spec) {
  TRY(in_range("budget.dollars", spec.budget_dollars(), 0.0, kDollarsMost));
  TRY(in_range("budget.dollars_per_hour", spec.budget_dollars_per_hour(), 0.0, kDollarsMost));
  return in_range("budget.max_node_price", spec.max_node_price(), 0.0, kPriceMost);
}

}  // namespace

Result<void> validate_run_spec(const pb::RunSpec& spec) {
  TRY(validate_name(spec.name(), "name"));
  TRY(validate_name(spec.dataset(), "dataset"));
  TRY(validate_shape(spec));
  TRY(text_at_most("model.init", spec.init(), 4096));
  TRY(validate_train(spec.train()));
  if (spec.train().weight_norm() && !spec.init().empty())
    return bad("train.weight_norm", "false beside model.init, whose rows have lengths of their own",
               "true");
  TRY(validate_checkpoint(spec));
  TRY(validate_budget(spec));
  TRY(in_range<std::uint32_t>("schedule.turn_rounds", spec.turn_rounds(), 0, 1'000'000));
  TRY(in_range("schedule.turn_seconds", spec.turn_seconds(), 0.0, 1e7));
  TRY(in_range<std::uint32_t>("schedule.cards_per_expert", spec.cards_per_expert(), 0,
                              static_cast<std::uint32_t>(kSlots)));
  if (!spec.cards().empty() && spec.cards() != "any" && spec.cards() != "same")
    return bad("schedule.cards", "\"any\" or \"same\"", text('"', spec.cards().substr(0, 16), '"'));
  if (const double scale = spec.interpolation_scale(); scale != 0)
    TRY(in_range("model.interpolation_scale", scale, 1 / kInterpolation, kInterpolation));
  const std::string& architecture = spec.architecture();
  if (!architecture.empty() && architecture != "dit" && architecture != "pixart")
    return bad("model.architecture", "\"dit\" or \"pixart\"",
               text('"', architecture.substr(0, 16), '"'));
  if (spec.router_kind() == "analytic" || spec.router_kind() == "learned") return {};
  return bad("router.kind", "\"analytic\" or \"learned\"",
             text('"', spec.router_kind().substr(0, 16), '"'));
}

}  // namespace skerry::protocol
