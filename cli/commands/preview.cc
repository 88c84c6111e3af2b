// SPDX-License-Identifier: Apache-2.0
// run preview: pictures of a run while it is trained, drawn on this machine
// from what is committed.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <memory>
#include <ostream>

#include "base/text.h"
#include "cli/ensemble/committed_ensemble.h"
#include "cli/ensemble/export_expert.h"
#include "cli/ensemble/sampling.h"
#include "cli/run/follow_run.h"
#include "cli/shell/command.h"
#include "cli/shell/exit_code.h"
#include "cli/shell/patience.h"
#include "storage/files.h"
#include "storage/folder_lock.h"

namespace skerry::cli {
namespace {

namespace fs = std::filesystem;

struct PreviewOptions {
  std::string run;
  std::string folder;
  bool watch = false;
  bool experts = false;
  Sampling sampling;
};

// A log of a night holds a line for each picture, and no progress.
class Silence final : public Terminal {
 public:
  std::ostream& err() override { return nowhere_; }
  bool err_is_terminal() const override { return false; }
  int columns() const override { return 80; }
  std::chrono::nanoseconds uptime() const override { return {}; }

 private:
  std::ostream nowhere_{nullptr};
};

// What a picture is drawn by: the experts of the ensemble, and the learned
// router where it is asked.
std::vector<pb::ExpertInfo> drawn_by(const pb::RunInfo& run, const Sampling& sampling) {
  const bool routed = sampling.route != "ancestral" && sampling.router != "analytic";
  std::vector<pb::ExpertInfo> jobs;
  for (const pb::ExpertInfo& each : run.experts()) {
    if (!each.removed() && (routed || !each.router())) jobs.push_back(each);
  }
  return jobs;
}

// Experts commit independently. The minimum of their steps would stand still
// while others learn; the mean moves with each commit and ends at the target.
std::uint64_t mean_step(const std::vector<pb::ExpertInfo>& jobs) {
  std::uint64_t steps = 0;
  for (const pb::ExpertInfo& job : jobs) steps += job.step();
  return jobs.empty() ? 0 : steps / jobs.size();
}

// Another one means another picture.
std::string heads_of(const std::vector<pb::ExpertInfo>& jobs) {
  std::string heads;
  for (const pb::ExpertInfo& job : jobs)
    heads += text(job.index(), ':', to_hex(job.checkpoint()), ' ');
  return heads;
}

// Whom the ensemble still waits for; empty: all have committed.
std::string without_checkpoint(const pb::RunInfo& run) {
  std::string names;
  for (const pb::ExpertInfo& each : run.experts()) {
    if (each.removed() || !each.checkpoint().empty()) continue;
    names += text(names.empty() ? "" : ", ",
                  each.router() ? "the router" : text("expert ", each.index()));
  }
  return names;
}

// What must be the same for two pictures to compare.
Json settings_of(const std::string& run_id, const Sampling& sampling) {
  const auto absolute = [](const std::string& path) {
    std::error_code ignored;
    return path.empty() ? "" : printable(fs::absolute(path, ignored).lexically_normal().string());
  };
  Json settings{{"run_id", printable(run_id)},
                {"count", sampling.count},
                {"steps", sampling.steps},
                {"solver", sampling.solver},
                {"guidance", sampling.guidance},
                {"route", sampling.route},
                {"router", sampling.router},
                {"vae", absolute(sampling.vae)},
                {"label", sampling.label.value_or("")},
                {"seed", sampling.seed}};
  if (sampling.precision != "fp32")
    settings["precision"] = sampling.precision;  // older folders have none
  if (!sampling.prompt_embeddings.empty())
    settings["prompt_embeddings"] = absolute(sampling.prompt_embeddings);
  if (!sampling.prompts.empty()) {
    settings["prompts"] = sampling.prompts;
    settings["text_encoder"] = absolute(sampling.text_encoder);
  }
  return settings;
}

Result<void> check_settings(const std::string& folder, const Json& settings) {
  std::ifstream file(folder + "/preview.json");
  if (!file) return {};
  const Json there = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  std::string differs;
  for (const auto& [key, value] : settings.items()) {
    const Json other = there.is_object() ? there.value(key, Json()) : Json();
    if (other == value) continue;
    differs += text(differs.empty() ? "" : ", ", key, " ", other.dump(), " and not ", value.dump());
  }
  if (differs.empty()) return {};
  return fail(ErrorCode::kConflict,
              text(folder, " holds pictures that would not compare with these (", differs,
                   "): choose another folder with -o"));
}

// The pictures of one run in one folder.
class Previews {
 public:
  Previews(Command& command, const PreviewOptions& options, std::string engine, Json settings)
      : command_(command),
        options_(options),
        engine_(std::move(engine)),
        settings_(std::move(settings)) {}

  // The ensemble as it is committed by the time that it is fetched. `known`: as
  // it was when last asked.
  Result<void> draw(const pb::RunInfo& known);
  // Draws where the picture would be another than the last one.
  Result<void> follow(const pb::RunInfo& run);

 private:
  struct Target {
    std::string path;
    std::optional<std::uint32_t> expert;  // none: the ensemble
  };
  std::vector<Target> targets(const pb::RunInfo& run) const;
  std::vector<Target> missing(const pb::RunInfo& run) const;
  Result<pb::RunInfo> fetch();
  Result<void> draw_one(const Target& target);
  void report(const pb::RunInfo& run, bool drawn, double seconds);
  std::vector<pb::ExpertInfo> jobs(const pb::RunInfo& run) const {
    return drawn_by(run, options_.sampling);
  }
  std::string working_copy() const { return options_.folder + "/.ensemble/model"; }

  Command& command_;
  const PreviewOptions& options_;
  const std::string engine_;
  const Json settings_;
  std::string drawn_;  // heads of the last picture
  bool waits_ = false;
};

std::vector<Previews::Target> Previews::targets(const pb::RunInfo& run) const {
  const std::string number = text(mean_step(jobs(run)));
  const std::string stem =
      text(options_.folder, "/step-", std::string(number.size() < 8 ? 8 - number.size() : 0, '0'),
           number);
  std::vector<Target> all{{stem + ".png", std::nullopt}};
  if (!options_.experts) return all;
  for (const pb::ExpertInfo& job : jobs(run)) {
    if (!job.router()) all.push_back({text(stem, "-expert-", job.index(), ".png"), job.index()});
  }
  return all;
}

std::vector<Previews::Target> Previews::missing(const pb::RunInfo& run) const {
  std::vector<Target> left = targets(run);
  std::erase_if(left, [](const Target& target) {
    std::error_code error;
    return fs::exists(target.path, error);
  });
  return left;
}

Result<pb::RunInfo> Previews::fetch() {
  std::error_code error;
  for (const std::string& old : {working_copy(), working_copy() + ".partial"}) {
    fs::remove_all(old, error);
    if (error) return system_error("remove", old, error.value());
  }
  Silence silence;
  const bool quiet = options_.watch && !command_.around.err_is_terminal();
  Terminal& terminal = quiet ? static_cast<Terminal&>(silence) : command_.around;
  ASSIGN_OR_RETURN(const pb::EnsembleReply ensemble,
                   fetch_committed(command_, options_.run, working_copy(), {}, terminal,
                                   options_.folder + "/.ensemble/fetched"));
  return ensemble.run();
}

Result<void> Previews::draw_one(const Target& target) {
  Sampling sampling = options_.sampling;
  sampling.expert = target.expert;
  const auto words = sampling_words(engine_, working_copy(), sampling, target.path);
  ASSIGN_OR_RETURN(const int status, command_.around.run_program(words, [](const std::string&) {}));
  if (status == 0) return {};
  return fail(code_of_engine(status),
              text(target.path, " was not drawn (status ", status, "); the reason stands above"));
}

Result<void> Previews::draw(const pb::RunInfo& known) {
  const auto started = command_.around.uptime();
  pb::RunInfo run = known;
  const bool draws = !missing(run).empty();
  if (draws) {
    ASSIGN_OR_RETURN(run, fetch());
    for (const Target& target : missing(run)) TRY(draw_one(target));
    TRY(write_text_file(options_.folder + "/preview.json", settings_.dump(2) + "\n"));
  }
  ASSIGN_OR_RETURN(const storage::MappedFile picture,
                   storage::MappedFile::open(targets(run).front().path));
  TRY(write_text_file(options_.folder + "/latest.png", picture.bytes()));
  drawn_ = heads_of(jobs(run));
  report(run, draws, std::chrono::duration<double>(command_.around.uptime() - started).count());
  return {};
}

void Previews::report(const pb::RunInfo& run, bool drawn, double seconds) {
  const std::vector<Target> pictures = targets(run);
  if (!command_.json()) {
    if (!drawn) command_.tell("nothing has changed since this was drawn:");
    command_.out() << pictures.front().path << std::endl;
    return;
  }
  Json experts = Json::array();
  for (const pb::ExpertInfo& job : jobs(run)) {
    if (job.router()) continue;
    experts.push_back({{"index", job.index()}, {"step", job.step()}});
    if (options_.experts) experts.back()["path"] = pictures[experts.size()].path;
  }
  print_line(command_.out(), {{"path", pictures.front().path},
                              {"step", mean_step(jobs(run))},
                              {"experts", std::move(experts)},
                              {"drawn", drawn},
                              {"seconds", seconds}});
}

Result<void> Previews::follow(const pb::RunInfo& run) {
  if (const std::string lacking = without_checkpoint(run); !lacking.empty()) {
    if (!waits_) command_.tell(text("waiting for the first commit of ", lacking));
    waits_ = true;
    return {};
  }
  waits_ = false;
  if (heads_of(jobs(run)) == drawn_) return {};
  Result<void> drawn = draw(run);
  if (drawn.has_value() || has_ended(run) || !may_pass(drawn.error())) return drawn;
  command_.tell(text("no picture this time, trying again: ", drawn.error().message));
  return {};
}

Result<int> preview_in(Command& command, const PreviewOptions& options, const std::string& engine,
                       const pb::RunInfo& run) {
  const Json settings = settings_of(run.id(), options.sampling);
  TRY(check_settings(options.folder, settings));
  const std::string working = options.folder + "/.ensemble";
  ASSIGN_OR_RETURN(const UniqueFd held,
                   storage::lock_folder(options.folder,
                                        text("another preview is drawing into ", options.folder,
                                             ": wait for it, or choose another folder with -o")));
  std::error_code error;
  fs::create_directory(working, error);
  if (error) return system_error("make the folder", working, error.value());
  Previews previews(command, options, engine, settings);
  const auto run_it = [&]() -> Result<int> {
    if (options.watch) {
      return follow_run(command, options.run,
                        [&](const pb::RunInfo& now) { return previews.follow(now); });
    }
    TRY(previews.draw(run));
    return kExitOk;
  };
  Result<int> status = run_it();
  // What came before the coordinator went away need not come again.
  if (status.has_value() || !may_pass(status.error())) fs::remove_all(working, error);
  return status;
}

Result<int> preview(Command& command, PreviewOptions options) {
  while (options.folder.size() > 1 && options.folder.ends_with('/')) options.folder.pop_back();
  ASSIGN_OR_RETURN(const std::string engine, command.around.find_program("skerry-engine"));
  ASSIGN_OR_RETURN(const pb::EnsembleReply ensemble, describe_ensemble(command, options.run));
  if (options.sampling.label) {
    const auto& classes = ensemble.dataset().classes();
    ASSIGN_OR_RETURN(options.sampling.label,
                     label_number(*options.sampling.label, {classes.begin(), classes.end()}));
  }
  command.around.set_parting_words(
      text("what was drawn is in ", options.folder, "; the same command goes on from there\n"));
  return preview_in(command, options, engine, ensemble.run());
}

}  // namespace

void add_preview_command(CLI::App& run, Command& command) {
  CLI::App* added = run.add_subcommand(
      "preview", "Draws pictures of what it has learned, while it goes on or afterwards");
  auto options = std::make_shared<PreviewOptions>();
  added->add_option("RUN", options->run, "its name or id")->required()->type_name("");
  added
      ->add_option("-o,--output", options->folder,
                   "where step-00000400.png and its like go, and latest.png; one folder for each "
                   "run and way "
                   "of drawing")
      ->required()
      ->type_name("DIR");
  added->add_flag(
      "--watch", options->watch,
      "after every commit, until it ends; exit status 0 when it is done, 8 when it failed or was "
      "stopped");
  added->add_flag(
      "--experts", options->experts,
      "also step-…-expert-K.png: the same noise and labels, drawn by expert K alone, of classes "
      "too that it has not seen");
  add_sampling_options(*added, options->sampling);
  added->footer(
      "Example:\n  skerry run preview fashion -o fashion-pictures --watch -n 40 --guidance 2\nIt "
      "fetches the "
      "experts as they are committed, only what has changed, and draws here: nodes do nothing for "
      "it. A "
      "picture's number is the mean of the experts' steps. One that is there is not drawn again. "
      "`skerry -o "
      "json run preview …` prints an object for each.");
  added->callback([&command, options] {
    command.chosen = [&command, options] { return preview(command, *options); };
  });
}

}  // namespace skerry::cli
