// SPDX-License-Identifier: Apache-2.0
#include "cli/run/run_view.h"

#include <ostream>

#include "base/ids.h"
#include "base/text.h"
#include "cli/run/run_words.h"

namespace skerry::cli {
namespace {

Json number_or_null(bool there, double value) { return there ? Json(value) : Json(); }

Json expert_json(const pb::ExpertInfo& expert) {
  const bool committed = !expert.checkpoint().empty();
  return {{"index", expert.index()},
          {"step", expert.step()},
          {"steps_target", expert.steps_target()},
          {"epoch", expert.epoch()},
          {"node", text_or_null(expert.node())},
          {"loss", number_or_null(committed || expert.loss() > 0, expert.loss())},
          {"checkpoint", hex_or_null(expert.checkpoint())},
          {"committed_at", time_or_null(expert.committed_unix_ms())},
          {"phase", text_or_null(expert.phase())},
          {"attempt", expert.attempt()},
          {"live_step", expert.live_step()},
          {"samples_per_second", expert.samples_per_second()},
          {"copies", expert.copies()},
          {"unanchored_steps", expert.unanchored_steps()},
          {"gradient_norm", number_or_null(committed, expert.gradient_norm())},
          {"router", expert.router()},
          {"needs_bytes", expert.needs_bytes()},
          {"eta_seconds", number_or_null(expert.eta_seconds() >= 0, expert.eta_seconds())},
          {"dollars", expert.dollars()},
          {"cards", expert.cards()},
          {"node_id", text_or_null(expert.node_id())}};
}

std::string share(std::uint64_t done, std::uint64_t target) {
  return target == 0 ? "-" : text(done * 100 / target, " %");
}

// Empty for a run that costs nothing and may cost anything.
std::string money_words(const pb::RunInfo& run) {
  const pb::RunSpec& spec = run.spec();
  if (run.dollars() <= 0 && spec.budget_dollars() <= 0 && spec.budget_dollars_per_hour() <= 0)
    return "";
  const auto most = [](double dollars) {
    return dollars > 0 ? text(" of ", fixed(dollars, 2)) : std::string();
  };
  return text(fixed(run.dollars(), 2), most(spec.budget_dollars()), " dollars spent, ",
              fixed(run.dollars_per_hour(), 2), most(spec.budget_dollars_per_hour()),
              " dollars an hour\n");
}

std::string goodput_words(const pb::RunInfo& run) {
  if (!run.has_goodput()) return "";
  return text(", goodput ", fixed(100 * run.goodput(), 1), " % (", run.lost_steps(),
              " steps lost)");
}

std::string model_words(const pb::RunInfo& run) {
  const pb::ModelSpec& model = run.model();
  const std::string shape =
      text(model.caption_dim() > 0 ? "PixArt, " : "", "width ", model.width(), ", depth ",
           model.depth(), ", heads ", model.heads(), ", patch ", model.patch_size());
  return run.spec().preset().empty() ? shape : text(run.spec().preset(), " (", shape, ")");
}

// Generation and counter: the number of both is for scripts.
std::string epoch_words(std::uint64_t value) { return value == 0 ? "-" : text(Epoch(value)); }

}  // namespace

Json spec_json(const pb::RunSpec& spec) {
  const pb::TrainSpec& train = spec.train();
  Json model = spec.preset().empty() ? Json{{"width", spec.width()},
                                            {"depth", spec.depth()},
                                            {"heads", spec.heads()},
                                            {"patch_size", spec.patch_size()}}
                                     : Json{{"preset", spec.preset()}};
  if (!spec.architecture().empty()) model["architecture"] = spec.architecture();
  if (spec.interpolation_scale() != 0) model["interpolation_scale"] = spec.interpolation_scale();
  if (!spec.init().empty()) model["init"] = printable(spec.init());
  Json checkpoint;
  if (spec.round_steps() > 0) {
    checkpoint["round_steps"] = spec.round_steps();
  } else {
    checkpoint["round_seconds"] = spec.round_seconds();
  }
  checkpoint["offline_rounds"] = spec.offline_rounds();
  checkpoint["copies"] = spec.copies();
  checkpoint["keep"] = spec.keep();
  return {{"name", spec.name()},
          {"dataset", spec.dataset()},
          {"seed", train.seed()},
          {"model", std::move(model)},
          {"train",
           {{"steps", train.steps()},
            {"batch_size", train.batch_size()},
            {"learning_rate", train.learning_rate()},
            {"schedule", word_of(kScheduleWords, train.schedule())},
            {"warmup_steps", train.warmup_steps()},
            {"clip", train.clip()},
            {"ema", train.ema()},
            {"label_dropout", train.label_dropout()},
            {"weight_decay", train.weight_decay()},
            {"cycle_steps", train.cycle_steps()},
            {"t_distribution", word_of(kTimeDistributionWords, train.t_distribution())},
            {"flip", train.flip()},
            {"weight_norm", train.weight_norm()},
            {"kernels", word_of(kKernelsWords, train.kernels())},
            {"micro_batch", train.micro_batch()},
            {"gradient_checkpointing", train.gradient_checkpointing()},
            {"state", word_of(kStateWords, train.state())},
            {"precision", train.precision()},
            {"threads", train.threads()}}},
          {"checkpoint", std::move(checkpoint)},
          {"schedule",
           {{"turn_seconds", spec.turn_seconds()},
            {"turn_rounds", spec.turn_rounds()},
            {"cards", spec.cards().empty() ? "any" : spec.cards()},
            {"cards_per_expert", spec.has_cards_per_expert() ? spec.cards_per_expert() : 1}}},
          {"budget",
           {{"dollars", spec.budget_dollars()},
            {"dollars_per_hour", spec.budget_dollars_per_hour()},
            {"max_node_price", spec.max_node_price()}}},
          {"router", {{"kind", spec.router_kind()}}}};
}

Json run_json(const pb::RunInfo& run) {
  return {{"name", run.name()},
          {"id", run.id()},
          {"state", run.state()},
          {"reason", text_or_null(run.reason())},
          {"dataset", run.spec().dataset()},
          {"samples_per_second", run.samples_per_second()},
          {"eta_seconds", number_or_null(run.eta_seconds() >= 0, run.eta_seconds())},
          {"steps_done", run.steps_done()},
          {"steps_target", run.steps_target()},
          {"dollars", run.dollars()},
          {"dollars_per_hour", run.dollars_per_hour()},
          {"goodput", number_or_null(run.has_goodput(), run.goodput())},
          {"lost_steps", run.lost_steps()},
          {"created_at", time_or_null(run.created_unix_ms())}};
}

Json run_show_json(const pb::RunInfo& run) {
  Json out = run_json(run);
  Json experts = Json::array();
  for (const pb::ExpertInfo& expert : run.experts()) experts.push_back(expert_json(expert));
  out["experts"] = std::move(experts);
  out["spec"] = spec_json(run.spec());
  return out;
}

std::string rate_words(const pb::RunInfo& run) {
  return run.samples_per_second() > 0 ? fixed(run.samples_per_second(), 1) : "-";
}

std::string eta_words(const pb::RunInfo& run) {
  if (run.eta_seconds() <= 0 || run.eta_seconds() > 1e9) return "-";
  return human_duration(std::chrono::seconds(static_cast<std::int64_t>(run.eta_seconds())));
}

void print_runs(std::ostream& out, const std::vector<pb::RunInfo>& runs, std::int64_t now_unix_ms,
                bool colour) {
  Table table({"NAME", "ID", "STATE", "DATASET", "DONE", "SAMPLES/S", "ETA", "CREATED", "REASON"});
  for (const pb::RunInfo& run : runs) {
    table.add({run.name(),
               run.id(),
               {run.state(), paint_of_state(run.state())},
               run.spec().dataset(),
               share(run.steps_done(), run.steps_target()),
               rate_words(run),
               eta_words(run),
               ago(run.created_unix_ms(), now_unix_ms),
               or_dash(run.reason())});
  }
  table.print(out, colour);
}

void print_run(std::ostream& out, const pb::RunInfo& run, std::int64_t now_unix_ms, bool colour) {
  out << printable(run.name()) << "  " << run.id() << "  "
      << painted(run.state(), paint_of_state(run.state()), colour);
  if (!run.reason().empty()) out << ": " << printable(run.reason());
  out << "\ndataset " << printable(run.spec().dataset()) << ", model "
      << printable(model_words(run)) << "\n"
      << share(run.steps_done(), run.steps_target()) << " committed, " << rate_words(run)
      << " samples/s, ETA " << eta_words(run) << goodput_words(run) << "\n"
      << money_words(run) << "\n";
  Table table({"EXPERT", "PHASE", "STEP", "OF", "LIVE", "LOSS", "NODE", "EPOCH", "CHECKPOINT",
               "COPIES", "COMMITTED"});
  std::uint64_t unanchored = 0;
  for (const pb::ExpertInfo& expert : run.experts()) {
    const bool committed = !expert.checkpoint().empty();
    table.add({expert.router() ? "router" : text(expert.index()),
               {or_dash(expert.phase()), paint_of_state(expert.phase())},
               text(expert.step()),
               text(expert.steps_target()),
               expert.live_step() > expert.step() ? text(expert.live_step()) : "-",
               committed || expert.loss() > 0 ? fixed(expert.loss(), 4) : "-",
               or_dash(expert.node()),
               epoch_words(expert.epoch()),
               committed ? to_hex(expert.checkpoint()).substr(0, 12) : "-",
               committed ? text(expert.copies()) : "-",
               ago(expert.committed_unix_ms(), now_unix_ms)});
    unanchored += expert.unanchored_steps();
  }
  table.print(out, colour);
  if (unanchored > 0)
    out << unanchored
        << " committed steps stand unanchored: the coordinator's disk has not got them whole\n";
}

}  // namespace skerry::cli
