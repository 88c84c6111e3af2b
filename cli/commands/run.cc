// SPDX-License-Identifier: Apache-2.0
// run … and shard list: trainings of an ensemble.
#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <ostream>

#include "base/text.h"
#include "cli/dataset/upload.h"
#include "cli/run/follow_run.h"
#include "cli/run/initial_weights.h"
#include "cli/run/run_file.h"
#include "cli/run/run_history.h"
#include "cli/run/run_log.h"
#include "cli/run/run_view.h"
#include "cli/shell/command.h"
#include "cli/shell/exit_code.h"
#include "cli/view/listing.h"
#include "protocol/limits.h"

namespace skerry::cli {
namespace {

struct CreateOptions {
  std::string file;
  bool dry_run = false;
  bool example = false;
};

// Checks the initial weights, which the run file names by folder, against the
// model that the coordinator would train. Uploads them unless this is a dry
// run.
Result<void> hand_over_weights(Command& command, const RunFile& file, pb::RunCreate& create) {
  ASSIGN_OR_RETURN(const InitialWeights weights, open_initial_weights(file));
  pb::RunSpec& spec = *create.mutable_spec();
  spec.clear_init();
  take_shape(weights, file, spec);
  pb::AdminRequest rehearsal;
  *rehearsal.mutable_run_create() = create;
  rehearsal.mutable_run_create()->set_dry_run(true);
  Result<pb::RunInfo> described = one_run(command, rehearsal);
  if (!described.has_value() &&
      described.error().code == ErrorCode::kConflict) {  // there already, perhaps the same
    described = one_run(command, named(&pb::AdminRequest::mutable_run_show, spec.name()));
  }
  TRY(described);
  const pb::ModelSpec& model = described->model();
  const double scale = weights.config.model.interpolation_scale;
  if (model.caption_dim() > 0 && spec.interpolation_scale() == 0 && scale != 1)
    spec.set_interpolation_scale(scale);
  if (create.dry_run()) {
    TRY(check_initial_weights(weights, model));
    return {};
  }
  ASSIGN_OR_RETURN(*spec.mutable_init(), upload_initial_weights(command, weights, model));
  return {};
}

// A mirrored image no longer is what such a caption says.
void warn_of_flip(Command& command, const pb::RunSpec& spec) {
  if (!spec.train().flip() || spec.architecture() == "dit") return;
  const auto dataset = one_dataset(command, spec.dataset());
  if (!dataset || dataset->sided_captions() == 0) return;
  command.tell(text("warning: ", dataset->sided_captions(), " captions of ", spec.dataset(),
                    " say left or right, and train.flip mirrors half of the images: set flip = "
                    "false, or train from captions without sides"));
}

Result<int> create_run(Command& command, const CreateOptions& options) {
  if (options.example) {
    command.out() << example_run_file();
    return kExitOk;
  }
  if (options.file.empty()) {
    return fail(ErrorCode::kInvalid,
                "run create needs -f FILE; `skerry run create --example` prints one to start from");
  }
  ASSIGN_OR_RETURN(const RunFile file, read_run_file(options.file));
  pb::RunSpec spec = file.spec;
  pb::AdminRequest request;
  *request.mutable_run_create()->mutable_spec() = spec;
  request.mutable_run_create()->set_dry_run(options.dry_run);
  if (!spec.init().empty()) {
    TRY(hand_over_weights(command, file, *request.mutable_run_create()));
    spec = request.run_create().spec();
    spec.set_init(file.spec.init());
  }
  warn_of_flip(command, spec);
  ASSIGN_OR_RETURN(const pb::AdminReply reply, command.ask(request));
  const bool described = reply.runs().runs_size() == 1;
  const pb::RunInfo run = described ? reply.runs().runs(0) : pb::RunInfo();
  const bool existed = reply.runs().existed();
  if (command.json()) {
    Json out =
        described ? run_show_json(run) : Json{{"name", spec.name()}, {"spec", spec_json(spec)}};
    out["dry_run"] = options.dry_run;
    out["created"] = !options.dry_run && !existed;
    print_object(command.out(), std::move(out));
  } else if (options.dry_run) {
    command.out() << "the coordinator would start this run:\n" << spec_json(spec).dump(2) << '\n';
  } else {
    const std::string name = text(spec.name(), described ? text(" (", run.id(), ")") : "");
    command.out() << (existed ? text(name, " is there already: ", run.state())
                              : text("created ", name))
                  << '\n';
    command.tell(text("`skerry run watch ", spec.name(), "` follows it"));
  }
  return kExitOk;
}

Result<int> list_runs(Command& command) {
  ASSIGN_OR_RETURN(const std::vector<pb::RunInfo> runs, all_runs(command));
  if (command.json()) {
    Json items = Json::array();
    for (const pb::RunInfo& run : runs) items.push_back(run_json(run));
    print_items(command.out(), std::move(items));
    return kExitOk;
  }
  print_runs(command.out(), runs, command.around.unix_ms(), command.colour());
  if (runs.empty()) command.tell("no run yet: `skerry run create --example > run.toml` is a start");
  return kExitOk;
}

Result<int> show_run(Command& command, const std::string& name) {
  ASSIGN_OR_RETURN(const pb::RunInfo run,
                   one_run(command, named(&pb::AdminRequest::mutable_run_show, name)));
  if (command.json()) {
    print_object(command.out(), run_show_json(run));
  } else {
    print_run(command.out(), run, command.around.unix_ms(), command.colour());
  }
  return kExitOk;
}

// On a terminal the table is drawn over the last one; elsewhere it is printed
// where commits or states changed.
void draw(Command& command, const pb::RunInfo& run, std::string& last) {
  std::ostringstream drawn;
  if (command.json()) {
    drawn << versioned(run_show_json(run)).dump() << '\n';
  } else {
    print_run(drawn, run, command.around.unix_ms(), command.colour());
  }
  const bool redraw = command.around.out_is_terminal() && !command.json();
  std::string key = redraw ? drawn.str() : text(run.state(), run.steps_done());
  for (const pb::ExpertInfo& expert : run.experts())
    key += text(' ', expert.node_id(), ' ', expert.phase());
  if (key == last) return;
  if (redraw) command.out() << "\033[H\033[J";
  command.out() << drawn.str() << std::flush;
  last = std::move(key);
}

Result<int> watch_run(Command& command, const std::string& name) {
  std::string last;
  return follow_run(command, name, [&](const pb::RunInfo& run) -> Result<void> {
    draw(command, run, last);
    return {};
  });
}

Result<int> extend_run(Command& command, const std::string& name, std::uint64_t steps) {
  pb::AdminRequest request;
  request.mutable_run_extend()->set_run(name);
  request.mutable_run_extend()->set_steps(steps);
  TRY(command.ask(request));
  command.did("run", name, text("each expert now trains up to step ", steps));
  return kExitOk;
}

struct BudgetOptions {
  std::optional<double> dollars, dollars_per_hour, max_node_price;
};

Result<int> change_budget(Command& command, const std::string& name, const BudgetOptions& options) {
  if (!options.dollars && !options.dollars_per_hour && !options.max_node_price) {
    return fail(ErrorCode::kInvalid,
                "run budget: expected --dollars, --dollars-per-hour or --max-node-price, found "
                "none; `skerry run show` prints what is spent");
  }
  const auto check = [](const char* option, const std::optional<double>& value,
                        double most) -> Result<void> {
    if (!value || (*value >= 0 && *value <= most)) return {};
    return fail(ErrorCode::kInvalid, text(option, ": expected a number of dollars from 0 to ", most,
                                          ", 0 for no limit, found ", *value));
  };
  TRY(check("--dollars", options.dollars, protocol::kDollarsMost));
  TRY(check("--dollars-per-hour", options.dollars_per_hour, protocol::kDollarsMost));
  TRY(check("--max-node-price", options.max_node_price, protocol::kPriceMost));
  pb::AdminRequest request;
  pb::RunBudget& budget = *request.mutable_run_budget();
  budget.set_run(name);
  if (options.dollars) budget.set_dollars(*options.dollars);
  if (options.dollars_per_hour) budget.set_dollars_per_hour(*options.dollars_per_hour);
  if (options.max_node_price) budget.set_max_node_price(*options.max_node_price);
  TRY(command.ask(request));
  ASSIGN_OR_RETURN(const pb::RunInfo run,
                   one_run(command, named(&pb::AdminRequest::mutable_run_show, name)));
  const auto limit = [](double dollars) {
    return dollars > 0 ? fixed(dollars, 2) : std::string("no limit");
  };
  const pb::RunSpec& spec = run.spec();
  command.tell(text(name, " is ", run.state(), ", ", fixed(run.dollars(), 2),
                    " dollars spent; dollars: ", limit(spec.budget_dollars()),
                    ", dollars an hour: ", limit(spec.budget_dollars_per_hour()),
                    ", of a node: ", limit(spec.max_node_price())));
  if (command.json()) print_object(command.out(), run_show_json(run));
  return kExitOk;
}

Result<int> change_expert(Command& command, const std::string& name, std::uint32_t expert,
                          bool add) {
  pb::AdminRequest request;
  request.mutable_run_expert()->set_run(name);
  request.mutable_run_expert()->set_expert(expert);
  request.mutable_run_expert()->set_add(add);
  TRY(command.ask(request));
  command.did("run", name,
              text("expert ", expert,
                   add ? " is of the ensemble: it trains on, and the router knows its partition"
                       : " is removed: it commits and gives its lease back, and the router leaves "
                         "its partition out"));
  return kExitOk;
}

// Asks until nothing is missing, or nothing has come for as long as the person
// waits.
Result<int> adopt_run(Command& command, const std::string& name, bool partial,
                      std::uint64_t wait_seconds) {
  pb::AdminRequest request;
  request.mutable_run_adopt()->set_run(name);
  std::size_t missing = SIZE_MAX;
  std::uint64_t waited = 0;
  while (true) {
    request.mutable_run_adopt()->set_partial(partial && waited >= wait_seconds);
    ASSIGN_OR_RETURN(const pb::AdminReply reply, command.ask(request));
    if (!reply.has_adopted()) return unexpected_reply();
    const pb::RunAdoptReply& adopted = reply.adopted();
    const auto now_missing = static_cast<std::size_t>(adopted.missing_size());
    waited = now_missing < missing ? 0 : waited + 1;
    missing = now_missing;
    if (!adopted.done() && waited < wait_seconds + (partial ? 2 : 0)) {
      command.around.wait(std::chrono::seconds(1));
      continue;
    }
    const std::string& state = adopted.run().state();
    if (adopted.done() && (state == "paused" || state == "stopped" || state == "failed")) {
      return fail(ErrorCode::kConflict, text(name,
                                             " is no orphan: the coordinator knows it, and "
                                             "it is ",
                                             state));
    }
    for (const std::string& part : adopted.missing()) command.tell("missing: " + printable(part));
    if (command.json()) {
      Json out = adopted.done() ? run_show_json(adopted.run()) : Json{{"name", name}};
      out["adopted"] = adopted.done();
      out["missing"] = Json::array();
      for (const std::string& part : adopted.missing()) out["missing"].push_back(printable(part));
      print_object(command.out(), std::move(out));
    }
    if (!adopted.done()) {
      command.tell(text(
          name,
          " was not adopted: start the nodes that hold what is missing and ask again, or take the "
          "rest with --partial"));
      return kExitUnhealthy;
    }
    command.tell(text(name, ": adopted from records, and ",
                      state == "done" ? "done;" : "trains on;", " `skerry run why ", name,
                      "` says what is still to come"));
    return kExitOk;
  }
}

Result<int> explain_run(Command& command, const std::string& name) {
  ASSIGN_OR_RETURN(const pb::AdminReply reply,
                   command.ask(named(&pb::AdminRequest::mutable_run_why, name)));
  if (!reply.has_why()) return unexpected_reply();
  Json reasons = Json::array();
  for (const std::string& reason : reply.why().reasons()) {
    if (command.json()) {
      reasons.push_back(printable(reason));
    } else {
      command.out() << printable(reason) << '\n';
    }
  }
  if (command.json()) print_object(command.out(), {{"run", name}, {"reasons", std::move(reasons)}});
  return kExitOk;
}

Result<int> list_shards(Command& command, const std::string& name) {
  ASSIGN_OR_RETURN(const pb::AdminReply reply,
                   command.ask(named(&pb::AdminRequest::mutable_shard_list, name)));
  if (!reply.has_shards()) return unexpected_reply();
  Json items = Json::array();
  Table table({"PARTITION", "SHARD", "SAMPLES", "SIZE", "MANIFEST", "NODE"});
  for (const pb::ShardInfo& shard : reply.shards().shards()) {
    items.push_back({{"partition", shard.partition()},
                     {"name", printable(shard.object().name())},
                     {"samples", shard.samples()},
                     {"bytes", shard.object().bytes()},
                     {"manifest", hex_or_null(shard.object().manifest())},
                     {"node", text_or_null(shard.node())}});
    table.add({text(shard.partition()), shard.object().name(), text(shard.samples()),
               human_bytes(shard.object().bytes()), to_hex(shard.object().manifest()).substr(0, 12),
               or_dash(shard.node())});
  }
  if (command.json()) {
    print_items(command.out(), std::move(items));
  } else {
    table.print(command.out(), command.colour());
  }
  return kExitOk;
}

using Action = std::function<Result<int>(const std::string& name)>;

CLI::App* add_named(CLI::App& group, Command& command, const std::string& verb,
                    const std::string& meaning, const std::string& example, Action action) {
  CLI::App* added = group.add_subcommand(verb, meaning);
  auto name = std::make_shared<std::string>();
  added->add_option("RUN", *name, "its name or id")->required()->type_name("");
  added->footer("Example:\n  " + example);
  added->callback([&command, name, action = std::move(action)] {
    command.chosen = [name, action] { return action(*name); };
  });
  return added;
}

void add_expert_command(CLI::App& group, Command& command, const std::string& verb,
                        const std::string& meaning, bool add) {
  auto index = std::make_shared<std::uint32_t>(0);
  add_named(group, command, verb, meaning, text("skerry run expert ", verb, " fashion 4"),
            [&command, index, add](const std::string& name) {
              return change_expert(command, name, *index, add);
            })
      ->add_option("INDEX", *index, "the expert, as `skerry run show` numbers them")
      ->required()
      ->type_name("");
}

void add_budget(CLI::App& group, Command& command) {
  auto options = std::make_shared<BudgetOptions>();
  CLI::App* budget = add_named(
      group, command, "budget",
      "Changes what a run may cost; one that paused for its budget goes on if there is money again",
      "skerry run budget fashion --dollars 50", [&command, options](const std::string& name) {
        return change_budget(command, name, *options);
      });
  budget
      ->add_option("--dollars", options->dollars,
                   "in all: more than is spent, or 0 for no limit; beyond it the run pauses")
      ->type_name("N");
  budget
      ->add_option("--dollars-per-hour", options->dollars_per_hour,
                   "of all its leases together; no lease is granted beyond; 0 for no limit")
      ->type_name("N");
  budget
      ->add_option("--max-node-price", options->max_node_price,
                   "dollars an hour; a dearer node gets no lease; 0 for no limit")
      ->type_name("N");
}

void add_history(CLI::App& group, Command& command) {
  auto options = std::make_shared<HistoryOptions>();
  CLI::App* history =
      add_named(group, command, "history",
                "What each commit said: step, loss, speed and node; the older ones become sparser",
                "skerry run history fashion --expert 0 -o json",
                [&command, options](const std::string& name) {
                  return print_history(command, name, *options);
                });
  history
      ->add_option("--expert", options->expert,
                   "only of this one, as `skerry run show` numbers them")
      ->type_name("INDEX");
  history->add_option("--after", options->after, "only points with a higher `number`")
      ->type_name("NUMBER");
}

void add_log(CLI::App& group, Command& command) {
  auto options = std::make_shared<LogOptions>();
  CLI::App* log = add_named(
      group, command, "log",
      "Writes the history to a folder, for TensorBoard and as JSON lines; again: what is new",
      "skerry run log fashion -o fashion-log --watch",
      [&command, options](const std::string& name) { return log_run(command, name, *options); });
  log->add_option("-o,--output", options->folder, "the folder")->required()->type_name("DIR");
  log->add_flag("--watch", options->watch, "go on until the run ends");
}

void add_create(CLI::App& group, Command& command) {
  CLI::App* create = group.add_subcommand("create", "Starts a run from a run file");
  auto options = std::make_shared<CreateOptions>();
  create->add_option("-f,--file", options->file, "the run file; - reads standard input")
      ->type_name("FILE");
  create->add_flag("--dry-run", options->dry_run, "check everything, start nothing");
  create->add_flag("--example", options->example,
                   "print a run file with every key, its default and its meaning");
  create->footer(
      "Example:\n  skerry run create --example > run.toml\n  skerry run create -f run.toml "
      "--dry-run\n"
      "The same file again changes nothing, and says that the run is there already; another run of "
      "that name "
      "is "
      "an error.");
  create->callback([&command, options] {
    command.chosen = [&command, options] { return create_run(command, *options); };
  });
}

}  // namespace

void add_run_commands(CLI::App& root, Command& command) {
  CLI::App* group = root.add_subcommand("run", "Trainings of an ensemble");
  group->require_subcommand(1);
  add_create(*group, command);
  CLI::App* list = group->add_subcommand("list", "Lists the runs");
  list->footer("Example:\n  skerry run list -o json");
  list->callback([&command] { command.chosen = [&command] { return list_runs(command); }; });

  add_named(*group, command, "show", "Shows one run and its experts",
            "skerry run show fashion -o json",
            [&command](const std::string& name) { return show_run(command, name); });
  add_named(
      *group, command, "watch",
      "Shows it until it ends; exit status 0 when it is done, 8 when it failed or was stopped",
      "skerry run watch fashion && skerry ensemble fetch fashion -o out",
      [&command](const std::string& name) { return watch_run(command, name); });
  add_preview_command(*group, command);
  add_named(*group, command, "pause", "Has its experts commit and give their leases back",
            "skerry run pause fashion", [&command](const std::string& name) {
              return command.carry_out("run", &pb::AdminRequest::mutable_run_pause, name,
                                       "pausing at the next commits");
            });
  add_named(*group, command, "resume", "Goes on after a pause", "skerry run resume fashion",
            [&command](const std::string& name) {
              return command.carry_out("run", &pb::AdminRequest::mutable_run_resume, name,
                                       "resumed");
            });
  add_named(
      *group, command, "stop", "Ends it for good; what was committed can still be fetched",
      "skerry run stop fashion --yes", [&command](const std::string& name) -> Result<int> {
        TRY(command.confirm(text("End ", name, " for good? It cannot be resumed, only fetched.")));
        return command.carry_out("run", &pb::AdminRequest::mutable_run_stop, name, "stopped");
      });
  auto steps = std::make_shared<std::uint64_t>(0);
  CLI::App* extend = add_named(
      *group, command, "extend", "Raises how far each expert trains",
      "skerry run extend fashion --steps 4000",
      [&command, steps](const std::string& name) { return extend_run(command, name, *steps); });
  extend->add_option("--steps", *steps, "the new target, higher than the one before")
      ->required()
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1'000'000'000}))
      ->type_name("N");
  add_budget(*group, command);
  CLI::App* expert = group->add_subcommand(
      "expert",
      "Which experts are of the ensemble: the router follows, and nothing is trained for that");
  expert->require_subcommand(1);
  add_expert_command(
      *expert, command, "remove",
      "Takes an expert out: it is not trained, fetched or routed to; what it committed stays",
      false);
  add_expert_command(*expert, command, "add",
                     "Brings one back, from where it was: an unfinished one trains on", true);
  auto partial = std::make_shared<bool>(false);
  auto wait = std::make_shared<std::uint64_t>(60);
  CLI::App* adopt =
      add_named(*group, command, "adopt",
                "Takes back an orphan, a run that nodes hold and a restored coordinator does not "
                "know; exit status 8 "
                "where a part is missing",
                "skerry run adopt fashion", [&command, partial, wait](const std::string& name) {
                  return adopt_run(command, name, *partial, *wait);
                });
  adopt->add_flag(
      "--partial", *partial,
      "do without what is still missing then: its expert goes on from an older checkpoint, "
      "or begins anew");
  adopt->add_option("--wait", *wait, "how long to wait while nothing more comes from nodes (60)")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{86'400}))
      ->type_name("SECONDS");
  add_named(*group, command, "delete", "Deletes it with all its checkpoints",
            "skerry run delete fashion --yes", [&command](const std::string& name) -> Result<int> {
              TRY(command.confirm(
                  text("Delete ", name, " with all its checkpoints? They cannot be had again.")));
              return command.carry_out("run", &pb::AdminRequest::mutable_run_delete, name,
                                       "deleted");
            });
  add_named(*group, command, "why", "Says why its experts are where they are",
            "skerry run why fashion",
            [&command](const std::string& name) { return explain_run(command, name); });
  add_history(*group, command);
  add_log(*group, command);

  CLI::App* shards = root.add_subcommand("shard", "The immutable files of samples");
  shards->require_subcommand(1);
  add_named(*shards, command, "list", "Lists the shards of a run and who trains on them",
            "skerry shard list fashion",
            [&command](const std::string& name) { return list_shards(command, name); });
}

}  // namespace skerry::cli
