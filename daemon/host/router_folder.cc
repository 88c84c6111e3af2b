// SPDX-License-Identifier: Apache-2.0
#include "daemon/host/router_folder.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/text.h"
#include "daemon/core/objects.h"
#include "gossip/gossip.h"
#include "gossip/router_parts.h"
#include "storage/files.h"
#include "storage/layout.h"

namespace skerry::daemon {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct RouterFile {
  std::string name;  // in the folder
  gossip::Part part;
};

Json holders_json(const std::vector<gossip::Holder>& holders) {
  Json list = Json::array();
  for (const gossip::Holder& holder : holders) {
    const std::string address = gossip::node_address(*holder.record);
    list.push_back({{"id", holder.node.str()},
                    {"name", gossip::certified(*holder.record).name()},
                    {"address", address.empty() ? Json() : Json(address)}});
  }
  return list;
}

Json expert_json(const gossip::ExpertSource& source) {
  const pb::ExpertRecord& best = source.best;
  return {{"index", source.index},
          {"step", best.step()},
          {"round", best.round() == 0 ? Json() : Json(best.round())},
          {"epoch", best.epoch()},
          {"loss", best.loss()},
          {"share", best.share()},
          {"manifest", to_hex(best.checkpoint().manifest())},
          {"bytes", best.checkpoint().bytes()},
          {"acknowledged", source.acknowledged},
          {"age_seconds", std::chrono::duration<double>(source.age).count()},
          {"holders", holders_json(source.holders)}};
}

std::string experts_json(const gossip::RouterParts& parts) {
  Json experts = Json::array();
  for (const gossip::ExpertSource& source : parts.experts) experts.push_back(expert_json(source));
  Json missing = parts.missing;
  if (!parts.learned_router_missing.empty()) missing.push_back(parts.learned_router_missing);
  const Json list = {
      {"format", 1},
      {"run", parts.about.name()},
      {"run_id", parts.run.str()},
      {"dataset", parts.about.dataset()},
      {"experts", std::move(experts)},
      {"learned_router", parts.learned_router ? expert_json(*parts.learned_router) : Json()},
      {"missing", std::move(missing)}};
  return list.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<gossip::RouterParts> parts_of(const gossip::Table& table, const std::string& run, Now now) {
  if (const auto id = gossip::run_named(table, run, now))
    return gossip::router_parts(table, *id, now);
  std::string known;
  for (const pb::RunRecord& each : gossip::known_runs(table, now))
    known += text(known.empty() ? "" : ", ", each.name());
  return fail(ErrorCode::kNotFound, text("no record on this disk tells of a run ", run,
                                         "; they tell of ", known.empty() ? "none" : known));
}

Result<std::vector<RouterFile>> files_of(const gossip::RouterParts& parts) {
  std::vector<RouterFile> files;
  std::string unknown;
  if (parts.router) {
    files.push_back({"router.safetensors", *parts.router});
  } else {
    unknown += "\n  router: no record names it";
  }
  for (const gossip::ExpertSource& source : parts.experts) {
    if (source.statistics) {
      files.push_back({text("partition-", source.index, ".safetensors"), *source.statistics});
    } else {
      unknown += text("\n  statistics of partition ", source.index, ": no record names them");
    }
  }
  for (ExpertIndex index = 0; index < parts.about.experts(); ++index) {
    const bool is_known =
        std::ranges::count(parts.experts, index, &gossip::ExpertSource::index) != 0;
    if (!is_known && std::ranges::count(parts.about.without(), index) == 0)
      unknown += text("\n  expert ", index, ": no record tells of a checkpoint");
  }
  if (unknown.empty()) return files;
  return fail(ErrorCode::kUnavailable, text("the records on this disk do not make a router of ",
                                            parts.about.name(), ":", unknown));
}

std::string who_holds(const std::vector<gossip::Holder>& holders) {
  std::string words;
  for (const gossip::Holder& holder : holders) {
    const std::string address = gossip::node_address(*holder.record);
    words += text(words.empty() ? "with " : ", ", gossip::certified(*holder.record).name(), " (",
                  address.empty() ? "only dials out" : address, ")");
  }
  return words.empty() ? "with no node that has said so" : words;
}

std::string expert_words(const gossip::ExpertSource& source, const std::string& name) {
  return text("  ", name, ": step ", source.best.step(), ", epoch ", Epoch(source.best.epoch()),
              ", told ", human_duration(source.age), " ago, ", who_holds(source.holders), "\n");
}

std::string experts_words(const gossip::RouterParts& parts) {
  std::string words;
  for (const gossip::ExpertSource& source : parts.experts)
    words += expert_words(source, text("expert ", source.index));
  if (parts.learned_router) words += expert_words(*parts.learned_router, "learned router");
  return words;
}

Result<void> check_here(const storage::ObjectStore& objects, const std::vector<RouterFile>& files) {
  std::string elsewhere;
  for (const RouterFile& file : files) {
    if (!objects.has(name_of(file.part.object)))
      elsewhere += text("\n  ", file.name, " is ", who_holds(file.part.holders));
  }
  if (elsewhere.empty()) return {};
  return fail(
      ErrorCode::kUnavailable,
      text("not all of the router is on this disk; `skerry ensemble fetch --from` gets the whole "
           "ensemble over the network:",
           elsewhere));
}

Result<void> write_file(const storage::ObjectStore& objects, const RouterFile& file,
                        const std::string& folder) {
  const Hash object = name_of(file.part.object);
  ASSIGN_OR_RETURN(const storage::NamedManifest named, objects.manifest(object));
  if (named.manifest.kind != storage::ManifestKind::kFile)
    return fail(ErrorCode::kCorrupt, text("what the records name as ", file.name, " is no file"));
  return storage::assemble_file(
      storage::file_layout(named.manifest),
      [&](std::span<const Hash> chunks) { return objects.read_each(object, chunks); },
      text(folder, "/", file.name));
}

Result<void> fill(const storage::ObjectStore& objects, const std::vector<RouterFile>& files,
                  const std::string& index, const std::string& partial) {
  for (const RouterFile& file : files) TRY(write_file(objects, file, partial));
  ASSIGN_OR_RETURN(storage::PartialFile list,
                   storage::PartialFile::create(partial + "/experts.json"));
  TRY(list.append(index));
  return list.commit();
}

}  // namespace

Result<gossip::Table> saved_records(const storage::Store& store, const std::string& coordinator_key,
                                    Now now) {
  ASSIGN_OR_RETURN(const std::optional<std::string> saved, store.get(gossip::kTableKey));
  gossip::Verifier verifier(coordinator_key);
  return gossip::load_table(saved.value_or(""), verifier, {}, now);
}

Result<RouterFolder> write_router_folder(const gossip::Table& table,
                                         const storage::ObjectStore& objects,
                                         const std::string& run, std::string folder, Now now) {
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  ASSIGN_OR_RETURN(const gossip::RouterParts parts, parts_of(table, run, now));
  ASSIGN_OR_RETURN(const std::vector<RouterFile> files, files_of(parts));
  TRY(check_here(objects, files));
  std::error_code error;
  if (fs::exists(folder, error))
    return fail(ErrorCode::kConflict,
                text(folder, " exists already: choose another with --out, or remove it"));
  const std::string partial = folder + ".partial";
  fs::remove_all(partial, error);
  fs::create_directories(partial, error);
  if (error) return system_error("make the folder", partial, error.value());
  RouterFolder made{experts_json(parts), text(folder, "\n", experts_words(parts))};
  const Result<void> filled = fill(objects, files, made.index, partial);
  if (filled) fs::rename(partial, folder, error);
  if (filled && !error) return made;
  const int number = error.value();
  fs::remove_all(partial, error);
  if (!filled) return filled.error();
  return system_error("make", folder, number);
}

}  // namespace skerry::daemon
