// ensemble fetch: the trained experts and their router as a folder.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <ostream>

#include "base/text.h"
#include "cli/command.h"
#include "cli/ensemble_folder.h"
#include "cli/exit_code.h"

namespace skerry::cli {
namespace {

// An unfinished run goes on while it is fetched, and old checkpoints go: then the newer ones are asked for.
constexpr int kAttempts = 5;

struct FetchOptions {
  std::string run;
  std::string folder;
  Extras extras;
};

Result<pb::EnsembleReply> describe(Command& command, const FetchOptions& options) {
  ASSIGN_OR_RETURN(const pb::AdminReply reply,
                   command.ask(named(&pb::AdminRequest::mutable_ensemble, options.run)));
  if (!reply.has_ensemble()) return unexpected_reply();
  TRY(check_ensemble(reply.ensemble(), options.folder));
  return reply.ensemble();
}

bool same_heads(const pb::EnsembleReply& one, const pb::EnsembleReply& other) {
  return std::equal(one.experts().begin(), one.experts().end(), other.experts().begin(),
                    other.experts().end(), [](const pb::EnsembleExpert& a, const pb::EnsembleExpert& b) {
                      return a.checkpoint().manifest() == b.checkpoint().manifest();
                    });
}

Result<int> fetch(Command& command, FetchOptions options) {
  while (options.folder.size() > 1 && options.folder.ends_with('/')) options.folder.pop_back();
  ASSIGN_OR_RETURN(pb::EnsembleReply ensemble, describe(command, options));
  ASSIGN_OR_RETURN(AdminClient * client, command.client());
  command.around.set_parting_words(
      text("what has come stays in ", options.folder, ".partial; the same command goes on from there\n"));
  for (int attempt = 1;; ++attempt) {
    const Result<void> fetched =
        fetch_ensemble(ensemble, options.folder, options.extras, *client, command.around);
    if (fetched.has_value()) break;
    if (fetched.error().code != ErrorCode::kUnavailable || attempt == kAttempts) return fetched.error();
    Result<pb::EnsembleReply> newer = describe(command, options);
    if (!newer.has_value() || same_heads(*newer, ensemble)) return fetched.error();
    command.tell("the run has gone on meanwhile: fetching its newer checkpoints");
    ensemble = std::move(*newer);
  }
  const std::vector<std::uint32_t> behind = laggards(ensemble);
  if (!behind.empty()) {
    command.tell(text(behind.size(), " of ", ensemble.experts_size(),
                      " experts are behind their target (the run is ", ensemble.run().state(),
                      "); ensemble.json flags them"));
  }
  if (command.json()) {
    print_object(command.out(), {{"folder", options.folder},
                                 {"run", ensemble.run().name()},
                                 {"experts", ensemble.experts_size()},
                                 {"laggards", behind}});
    return kExitOk;
  }
  command.out() << options.folder << '\n';
  command.tell(
      text("`skerry sample ", options.folder,
           " -n 16 -o grid.png` draws from it; README.md there is its model card, with its use from Python"));
  return kExitOk;
}

}  // namespace

void add_ensemble_commands(CLI::App& root, Command& command) {
  CLI::App* group = root.add_subcommand("ensemble", "The trained model");
  group->require_subcommand(1);
  CLI::App* added =
      group->add_subcommand("fetch", "Fetches experts and router into a folder that diffusers can load");
  auto options = std::make_shared<FetchOptions>();
  added->add_option("RUN", options->run, "its name or id; it need not be finished")
      ->required()
      ->type_name("");
  added->add_option("-o,--output", options->folder, "the folder to make; must not exist")
      ->required()
      ->type_name("DIR");
  added->add_flag(
      "--training-state", options->extras.training_state,
      "also the raw weights and moments, four times the bytes: expert_K/training_state.safetensors");
  added->add_flag("--raw-weights", options->extras.raw_weights,
                  "also the weights that were not averaged, as diffusers' variant \"raw\" of each expert");
  added->footer(
      "Example:\n  skerry ensemble fetch fashion -o fashion-ensemble\nAn interrupted fetch goes on where it "
      "was. `skerry -o json ensemble fetch …` prints what was made as JSON.");
  added->callback(
      [&command, options] { command.chosen = [&command, options] { return fetch(command, *options); }; });
}

}  // namespace skerry::cli
