// SPDX-License-Identifier: Apache-2.0
// ensemble fetch: the trained experts and their router as a folder.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <ostream>

#include "base/text.h"
#include "cli/connect/fleet.h"
#include "cli/ensemble/committed_ensemble.h"
#include "cli/ensemble/ensemble_folder.h"
#include "cli/shell/command.h"
#include "cli/shell/exit_code.h"
#include "gossip/router_parts.h"
#include "storage/files.h"

namespace skerry::cli {
namespace {

struct FetchOptions {
  std::string run;
  std::string folder;
  std::string from;  // a node; empty: the coordinator
  Extras extras;
};

// ---- With the coordinator gone: from records ----

std::optional<gossip::RouterParts> parts_of(const Fleet& fleet, const std::string& run) {
  const std::optional<RunId> id = gossip::run_named(fleet.table(), run, fleet.now());
  if (!id) return std::nullopt;
  Result<gossip::RouterParts> parts = gossip::router_parts(fleet.table(), *id, fleet.now());
  return parts ? std::optional(std::move(*parts)) : std::nullopt;
}

// The run's specification is an object like others, small enough for memory.
Result<pb::EnsembleReply> fetch_specification(Fleet& fleet, const pb::ObjectRef& spec,
                                              const std::string& scratch, Surroundings& around) {
  std::error_code error;
  std::filesystem::create_directories(scratch, error);
  if (error) return system_error("make the folder", scratch, error.value());
  ASSIGN_OR_RETURN(const Hash name, Hash::from_raw(spec.manifest()));
  exchange::FolderChunkStore chunk_store(scratch);
  around.err() << "reading what the run is" << std::endl;
  TRY(fleet.fetch({{name, spec.manifest_bytes(), {}, spec.bytes()}}, chunk_store,
                  [](std::uint64_t, std::uint64_t) {}));
  std::ifstream file(chunk_store.path_of(name), std::ios::binary);
  pb::EnsembleReply about;
  const bool read = about.ParseFromIstream(&file);
  std::filesystem::remove_all(scratch, error);
  if (!read)
    return fail(ErrorCode::kCorrupt,
                "the run's specification cannot be read: is it of another version?");
  return about;
}

// An expert that was removed from the run takes no part in the router.
void drop_statistics_of_others(pb::EnsembleReply& ensemble) {
  const auto is_others = [&](const pb::DatasetFile& file) {
    return file.role() == "partition" &&
           std::ranges::none_of(ensemble.experts(), [&](const pb::EnsembleExpert& expert) {
             return static_cast<std::int32_t>(expert.index()) == file.partition();
           });
  };
  auto& files = *ensemble.mutable_router();
  files.erase(std::remove_if(files.begin(), files.end(), is_others), files.end());
}

pb::EnsembleExpert expert_from(const gossip::ExpertSource& source, std::uint64_t steps_target,
                               std::uint64_t partition_samples) {
  pb::EnsembleExpert expert;
  expert.set_index(source.index);
  *expert.mutable_checkpoint() = source.best.checkpoint();
  expert.set_step(source.best.step());
  expert.set_steps_target(steps_target);
  expert.set_partition_samples(partition_samples);
  return expert;
}

// As the coordinator would answer.
Result<pb::EnsembleReply> ensemble_from(const gossip::RouterParts& parts, pb::EnsembleReply about) {
  const std::uint32_t count = about.dataset().partitions();
  if (count == 0 || about.dataset().partition_samples_size() != static_cast<int>(count)) {
    return fail(ErrorCode::kCorrupt, "the run's specification contradicts itself");
  }
  const std::uint64_t steps_target = about.run().steps_target() / parts.about.experts();
  for (const gossip::ExpertSource& source : parts.experts) {
    if (source.index >= count)
      return fail(ErrorCode::kCorrupt, text("expert ", source.index, " is not of the run"));
    *about.add_experts() = expert_from(
        source, steps_target, about.dataset().partition_samples(static_cast<int>(source.index)));
    pb::ExpertInfo& info = *about.mutable_run()->add_experts();
    info.set_index(source.index);
    info.set_checkpoint(source.best.checkpoint().manifest());
    info.set_loss(source.best.loss());
    info.set_committed_unix_ms(1);  // that it was, not when
  }
  if (parts.learned_router && parts.learned_router_missing.empty()) {
    *about.mutable_learned_router() =
        expert_from(*parts.learned_router, steps_target, about.dataset().samples());
  }
  drop_statistics_of_others(about);
  about.mutable_run()->set_state("as its nodes hold it");
  return about;
}

Result<pb::EnsembleReply> fetch_from_nodes(Command& command, const FetchOptions& options) {
  ASSIGN_OR_RETURN(const auto fleet, command.around.connect_fleet(command.context, options.from));
  const auto is_whole = [&] {
    const auto parts = parts_of(*fleet, options.run);
    return parts && parts->missing.empty() && parts->learned_router_missing.empty();
  };
  TRY(fleet->learn(is_whole));
  const auto parts = parts_of(*fleet, options.run);
  if (!parts) {
    return fail(ErrorCode::kNotFound,
                text("no record of these nodes tells of a run ", options.run));
  }
  if (!parts->missing.empty()) {
    std::string missing;
    for (const std::string& each : parts->missing) missing += "\n  " + each;
    return fail(ErrorCode::kUnavailable, text("the nodes that can be heard of do not hold all of ",
                                              options.run, ":", missing));
  }
  if (!parts->learned_router_missing.empty()) {
    command.tell(
        text(parts->learned_router_missing, "; the ensemble comes with the analytic router alone"));
  }
  ASSIGN_OR_RETURN(
      pb::EnsembleReply about,
      fetch_specification(*fleet, parts->spec.object, options.folder + ".about", command.around));
  ASSIGN_OR_RETURN(pb::EnsembleReply ensemble, ensemble_from(*parts, std::move(about)));
  TRY(check_ensemble(ensemble, options.folder));
  TRY(fetch_ensemble(ensemble, options.folder, options.extras, *fleet, command.around));
  return ensemble;
}

// An expert a line, also one that is behind.
void tell_steps(Command& command, const pb::EnsembleReply& ensemble) {
  const auto steps = [](const pb::EnsembleExpert& of) {
    return text(": step ", of.step(), " of ", of.steps_target());
  };
  for (const pb::EnsembleExpert& expert : ensemble.experts()) {
    command.tell(text("expert ", expert.index(), steps(expert),
                      is_laggard(expert) ? " (behind: the run has not finished it)" : ""));
  }
  if (ensemble.has_learned_router()) command.tell("router" + steps(ensemble.learned_router()));
}

Result<int> fetch(Command& command, FetchOptions options) {
  while (options.folder.size() > 1 && options.folder.ends_with('/')) options.folder.pop_back();
  command.around.set_parting_words(text("what has come stays in ", options.folder,
                                        ".partial; the same command goes on from there\n"));
  ASSIGN_OR_RETURN(const pb::EnsembleReply ensemble,
                   options.from.empty() ? fetch_committed(command, options.run, options.folder,
                                                          options.extras, command.around)
                                        : fetch_from_nodes(command, options));
  tell_steps(command, ensemble);
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
  command.tell(text("`skerry sample ", options.folder,
                    " -n 16 -o grid.png` draws from it; README.md there is its model card, with "
                    "its use from Python"));
  return kExitOk;
}

}  // namespace

void add_ensemble_commands(CLI::App& root, Command& command) {
  CLI::App* group = root.add_subcommand("ensemble", "The trained model");
  group->require_subcommand(1);
  CLI::App* added = group->add_subcommand(
      "fetch", "Fetches experts and router into a folder that diffusers can load");
  auto options = std::make_shared<FetchOptions>();
  added->add_option("RUN", options->run, "its name or id; it need not be finished")
      ->required()
      ->type_name("");
  added->add_option("-o,--output", options->folder, "the folder to make; must not exist")
      ->required()
      ->type_name("DIR");
  added->add_flag("--training-state", options->extras.training_state,
                  "also the raw weights and moments, four times the bytes: "
                  "expert_K/training_state.safetensors");
  added->add_flag(
      "--raw-weights", options->extras.raw_weights,
      "also the weights that were not averaged, as diffusers' variant \"raw\" of each expert");
  added
      ->add_option("--from", options->from,
                   "without the coordinator, from the nodes: HOST:PORT#KEY of any of them, or its "
                   "name: every "
                   "command that asks the coordinator remembers the nodes")
      ->type_name("NODE");
  added->footer(
      "Example:\n  skerry ensemble fetch fashion -o fashion-ensemble\nAn interrupted fetch goes on "
      "where it "
      "was. `skerry -o json ensemble fetch …` prints what was made as JSON.");
  added->callback([&command, options] {
    command.chosen = [&command, options] { return fetch(command, *options); };
  });
}

}  // namespace skerry::cli
