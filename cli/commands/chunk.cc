// SPDX-License-Identifier: Apache-2.0
// chunk …: the objects that runs and datasets name, where they are, and whether
// they are whole.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <ostream>
#include <tuple>

#include "base/progress.h"
#include "base/text.h"
#include "cli/connect/fleet.h"
#include "cli/shell/command.h"
#include "cli/shell/exit_code.h"
#include "cli/shell/patience.h"
#include "gossip/router_parts.h"

namespace skerry::cli {
namespace {

constexpr std::chrono::milliseconds kVerifyEvery{50};
constexpr std::size_t kVerifiedAtOnce = 8;
constexpr std::size_t kShownDigits = 12;
constexpr std::size_t kPrefixLeast = 4;

struct ListOptions {
  std::string run;
  std::string node;
  std::string object;
  bool chunks = false;
};

// Takes an object for whole once its manifest is here, so that no chunk is
// asked for.
class ManifestChunkStore final : public exchange::ChunkStore {
 public:
  Result<std::vector<Hash>> open(const storage::NamedManifest& object,
                                 const std::vector<std::string>&) override {
    manifests[object.name] = object.manifest;
    std::vector<Hash> all;
    for (const storage::Chunk& chunk : storage::distinct_chunks(object.manifest))
      all.push_back(chunk.hash);
    return all;
  }
  Result<void> write(const Hash&, const Hash&, std::string_view) override { return {}; }
  Result<void> seal(const Hash&) override { return {}; }
  Result<std::string> read(const Hash&, const Hash&) override { return nothing(); }
  Result<void> find(const Hash&) override { return nothing(); }

  std::map<Hash, storage::Manifest> manifests;

 private:
  static Error nothing() { return fail(ErrorCode::kNotFound, "nothing is offered here"); }
};

struct Object {
  pb::ObjectInfo info;
  Hash name;
  std::vector<std::string> holders;  // nodes, by their records
};

std::string what(const pb::ObjectInfo& info) {
  if (info.kind() == "checkpoint")
    return text("run ", info.run(), ", expert ", info.expert(), ", step ", info.step());
  return text("dataset ", info.dataset(), ", ", info.object().name());
}

Result<std::vector<Object>> all_objects(Command& command, const std::string& run,
                                        const std::string& prefix) {
  std::vector<Object> objects;
  std::string after;
  while (true) {
    pb::AdminRequest request;
    request.mutable_object_list()->set_run(run);
    request.mutable_object_list()->set_after(after);
    ASSIGN_OR_RETURN(const pb::AdminReply reply, command.ask(request));
    if (!reply.has_objects()) return unexpected_reply();
    for (const pb::ObjectInfo& info : reply.objects().objects()) {
      ASSIGN_OR_RETURN(const Hash name, Hash::from_raw(info.object().manifest()));
      if (name.hex().starts_with(prefix)) objects.push_back({info, name, {}});
    }
    if (reply.objects().next().empty() || reply.objects().next() == after) break;
    after = reply.objects().next();
  }
  if (objects.empty() && !prefix.empty())
    return fail(ErrorCode::kNotFound, text("no run or dataset names an object ", prefix));
  std::ranges::sort(objects, {}, [](const Object& object) {
    const pb::ObjectInfo& info = object.info;
    return std::make_tuple(info.run().empty(), info.run(), info.dataset(), info.expert(),
                           info.kind(), info.step(), info.object().name());
  });
  return objects;
}

// What the nodes say that they hold. Without them the list is still of use.
Result<void> add_holders(Command& command, std::vector<Object>& objects, const std::string& node) {
  const auto learnt = [&]() -> Result<std::unique_ptr<Fleet>> {
    ASSIGN_OR_RETURN(auto fleet, command.around.connect_fleet(command.context, ""));
    TRY(fleet->learn([] { return false; }));
    return fleet;
  }();
  if (!learnt) {
    if (!node.empty()) return learnt.error();
    command.tell("what the nodes hold is not known: " + learnt.error().message);
    return {};
  }
  const gossip::Table& table = (*learnt)->table();
  const Now now = (*learnt)->now();
  for (Object& object : objects) {
    bool is_held = false;
    for (const gossip::Holder& holder : gossip::holders_of(table, object.name.raw(), now)) {
      const std::string name = gossip::certified(*holder.record).name();
      is_held = is_held || name == node || holder.node.str() == node;
      object.holders.push_back(name.empty() ? holder.node.str() : name);
    }
    std::ranges::sort(object.holders);
    if (!node.empty() && !is_held) object.holders.clear();
  }
  if (node.empty()) return {};
  std::erase_if(objects, [](const Object& object) { return object.holders.empty(); });
  bool is_known = false;
  table.for_each(now, [&](const gossip::Entry& entry) {
    if (entry.record->key.kind != gossip::Kind::kNode) return;
    is_known = is_known || entry.record->key.author.str() == node ||
               gossip::certified(*entry.record).name() == node;
  });
  if (is_known) return {};
  return fail(
      ErrorCode::kNotFound,
      text("no node ", node, " has said anything: `skerry peer list` shows those that have"));
}

Json to_json(const Object& object) {
  const pb::ObjectInfo& info = object.info;
  Json holders = Json::array();
  for (const std::string& holder : object.holders) holders.push_back(printable(holder));
  return {{"object", object.name.hex()},
          {"kind", printable(info.kind())},
          {"run", text_or_null(printable(info.run()))},
          {"dataset", text_or_null(printable(info.dataset()))},
          {"name", text_or_null(printable(info.object().name()))},
          {"expert", info.expert() < 0 ? Json() : Json(info.expert())},
          {"step", info.kind() == "checkpoint" ? Json(info.step()) : Json()},
          {"bytes", info.object().bytes()},
          {"coordinator", printable(info.state())},
          {"holders", std::move(holders)}};
}

std::string holders_of(const Object& object) {
  std::string words;
  for (const std::string& holder : object.holders) words += text(words.empty() ? "" : ", ", holder);
  return or_dash(words);
}

Paint paint_of(const std::string& state) {
  return state == "damaged" ? Paint::kBad : state == "arriving" ? Paint::kWarning : Paint::kPlain;
}

// The chunks of a manifest with the part that each is first named by.
std::vector<std::pair<std::string, storage::Chunk>> chunks_of(const storage::Manifest& manifest) {
  std::vector<std::pair<std::string, storage::Chunk>> found;
  std::map<Hash, bool> named;
  for (const storage::ManifestPart& part : manifest.parts) {
    for (const storage::Chunk& chunk : storage::distinct_chunks(manifest, {part.name})) {
      if (named.emplace(chunk.hash, true).second) found.emplace_back(part.name, chunk);
    }
  }
  return found;
}

Result<std::map<Hash, storage::Manifest>> fetch_manifests(Command& command,
                                                          const std::vector<Object>& objects) {
  std::vector<WantedObject> wanted;
  for (const Object& object : objects) {
    if (object.info.state() == "whole")
      wanted.push_back({object.name, object.info.object().manifest_bytes(), {}, 0});
  }
  ManifestChunkStore chunk_store;
  ASSIGN_OR_RETURN(AdminClient * client, command.client());
  TRY(client->fetch(wanted, chunk_store, [](std::uint64_t, std::uint64_t) {}));
  return std::move(chunk_store.manifests);
}

Result<int> list_chunks(Command& command, const std::vector<Object>& objects) {
  ASSIGN_OR_RETURN(const auto manifests, fetch_manifests(command, objects));
  Json items = Json::array();
  Table table({"OF", "OBJECT", "PART", "CHUNK", "SIZE"});
  for (const Object& object : objects) {
    const auto manifest = manifests.find(object.name);
    if (manifest == manifests.end()) {
      command.tell(text(what(object.info), " is ", object.info.state(),
                        " at the coordinator: its chunks are not listed"));
      continue;
    }
    Json item = to_json(object);
    item["chunks"] = Json::array();
    for (const auto& [part, chunk] : chunks_of(manifest->second)) {
      item["chunks"].push_back(
          {{"chunk", chunk.hash.hex()}, {"part", part}, {"bytes", chunk.bytes}});
      if (!command.json()) {
        table.add({what(object.info), object.name.hex().substr(0, kShownDigits), part,
                   chunk.hash.hex().substr(0, kShownDigits), human_bytes(chunk.bytes)});
      }
    }
    items.push_back(std::move(item));
  }
  if (command.json()) {
    print_items(command.out(), std::move(items));
  } else {
    table.print(command.out(), command.colour());
  }
  return kExitOk;
}

Result<int> list(Command& command, const ListOptions& options) {
  ASSIGN_OR_RETURN(std::vector<Object> objects, all_objects(command, options.run, options.object));
  TRY(add_holders(command, objects, options.node));
  if (options.chunks) return list_chunks(command, objects);
  if (command.json()) {
    Json items = Json::array();
    for (const Object& object : objects) items.push_back(to_json(object));
    print_items(command.out(), std::move(items));
    return kExitOk;
  }
  Table table({"KIND", "OF", "SIZE", "OBJECT", "COORDINATOR", "NODES"});
  std::uint64_t bytes = 0;
  for (const Object& object : objects) {
    bytes += object.info.object().bytes();
    table.add({object.info.kind(),
               what(object.info),
               human_bytes(object.info.object().bytes()),
               object.name.hex().substr(0, kShownDigits),
               {object.info.state(), paint_of(object.info.state())},
               holders_of(object)});
  }
  table.print(command.out(), command.colour());
  command.tell(
      text(objects.size(), objects.size() == 1 ? " object, " : " objects, ", human_bytes(bytes)));
  return kExitOk;
}

// ---- verify ----

struct Verdict {
  const Object* object = nullptr;
  pb::ObjectVerifyReply said;
};

class Verification {
 public:
  Verification(Command& command, const std::vector<Object>& objects)
      : command_(command), patience_(command) {
    for (const Object& object : objects) {
      if (object.info.state() == "arriving") {
        ++on_their_way_;
      } else {
        waiting_.push_back(&object);
        total_bytes_ += object.info.object().bytes();
      }
    }
  }

  Result<void> run() {
    Progress progress(command_.around, "verifying", Progress::Unit::kBytes);
    patience_.answered();  // the list has come
    while (true) {
      while (open_.size() < kVerifiedAtOnce && !waiting_.empty()) {
        open_.push_back({waiting_.front(), {}});
        waiting_.pop_front();
      }
      if (open_.empty()) return {};
      for (auto each = open_.begin(); each != open_.end();) {
        ASSIGN_OR_RETURN(const bool done, ask(*each));
        each = done ? open_.erase(each) : std::next(each);
      }
      show(progress);
      if (!open_.empty() || !waiting_.empty()) command_.around.wait(kVerifyEvery);
    }
  }

  const std::vector<Verdict>& damaged() const { return damaged_; }
  std::size_t checked() const { return checked_; }
  std::uint64_t checked_bytes() const { return done_bytes_; }
  std::size_t on_their_way() const { return on_their_way_; }
  std::size_t gone() const { return gone_; }

 private:
  Result<bool> ask(Verdict& verdict) {
    pb::AdminRequest request;
    request.mutable_object_verify()->set_manifest(verdict.object->name.raw());
    const Result<pb::AdminReply> answer = command_.ask(request);
    if (!answer &&
        answer.error().code == ErrorCode::kNotFound) {  // a later checkpoint took its place
      ++gone_;
      return true;
    }
    if (!answer) {
      if (!patience_.bears(answer.error())) return answer.error();
      return false;
    }
    patience_.answered();
    if (!answer->has_verified()) return unexpected_reply();
    verdict.said = answer->verified();
    if (!verdict.said.done()) return false;
    ++checked_;
    done_bytes_ += verdict.object->info.object().bytes();
    if (!verdict.said.trouble().empty() || verdict.said.damaged_size() > 0)
      damaged_.push_back(verdict);
    return true;
  }

  void show(Progress& progress) const {
    std::uint64_t bytes = done_bytes_;
    for (const Verdict& each : open_) bytes += each.said.checked_bytes();
    progress.show(std::min(bytes, total_bytes_), total_bytes_);
  }

  Command& command_;
  Patience patience_;
  std::deque<const Object*> waiting_;
  std::vector<Verdict> open_;
  std::vector<Verdict> damaged_;
  std::size_t checked_ = 0;
  std::size_t gone_ = 0;
  std::size_t on_their_way_ = 0;
  std::uint64_t total_bytes_ = 0;
  std::uint64_t done_bytes_ = 0;
};

std::string trouble_of(const Verdict& verdict) {
  if (!verdict.said.trouble().empty()) return verdict.said.trouble();
  return text(what(verdict.object->info),
              " was read wrongly once and rightly then: the disk or the memory is failing");
}

Result<int> verify(Command& command, const std::string& run, const std::string& prefix) {
  ASSIGN_OR_RETURN(const std::vector<Object> objects, all_objects(command, run, prefix));
  Verification verification(command, objects);
  TRY(verification.run());
  if (command.json()) {
    Json damaged = Json::array();
    for (const Verdict& verdict : verification.damaged()) {
      Json item = to_json(*verdict.object);
      item.erase("holders");
      item["coordinator"] = verdict.said.trouble().empty() ? "whole" : "damaged";
      item["damaged_chunks"] = Json::array();
      for (const std::string& chunk : verdict.said.damaged())
        item["damaged_chunks"].push_back(to_hex(chunk));
      item["trouble"] = printable(trouble_of(verdict));
      damaged.push_back(std::move(item));
    }
    print_object(command.out(), {{"checked", verification.checked()},
                                 {"bytes", verification.checked_bytes()},
                                 {"arriving", verification.on_their_way()},
                                 {"damaged", std::move(damaged)}});
  } else {
    command.out() << "checked " << verification.checked() << " objects, "
                  << human_bytes(verification.checked_bytes());
    if (verification.on_their_way() > 0)
      command.out() << "; " << verification.on_their_way() << " are still on their way";
    if (verification.gone() > 0)
      command.out() << "; " << verification.gone() << " were dropped meanwhile";
    command.out() << ": "
                  << (verification.damaged().empty()
                          ? std::string("all whole")
                          : text(verification.damaged().size(), " damaged"))
                  << '\n';
    for (const Verdict& verdict : verification.damaged()) {
      command.out() << printable(what(verdict.object->info)) << ", object "
                    << verdict.object->name.hex().substr(0, kShownDigits) << ", "
                    << verdict.said.damaged_size()
                    << " chunks found wrong: " << printable(trouble_of(verdict)) << '\n';
    }
  }
  return verification.damaged().empty() ? kExitOk : kExitUnhealthy;
}

CLI::Validator is_prefix() {
  const auto check = [](const std::string& given) {
    const bool fits = given.size() >= kPrefixLeast && given.size() <= 2 * Hash::kBytes &&
                      given.find_first_not_of("0123456789abcdef") == std::string::npos;
    return fits ? std::string()
                : text("expected ", kPrefixLeast, " or more digits of an object's name");
  };
  return CLI::Validator(check, "");
}

void add_list(CLI::App& group, Command& command) {
  CLI::App* added = group.add_subcommand("list",
                                         "Lists the checkpoints and files of runs with their "
                                         "sizes, and who holds them; takes a few seconds");
  auto options = std::make_shared<ListOptions>();
  added->add_option("RUN", options->run, "its name or id; without: of all runs and datasets")
      ->type_name("");
  added->add_option("--node", options->node, "only what this node says that it holds")
      ->type_name("NODE");
  added->add_option("--object", options->object, "only this one, by the start of its name")
      ->check(is_prefix())
      ->type_name("HASH");
  added->add_flag("--chunks", options->chunks, "each chunk of each");
  added->footer(
      "Example:\n  skerry chunk list fashion\n  skerry chunk list --node rented-3\n"
      "  skerry chunk list fashion --object 3f0c9a11 --chunks");
  added->callback([&command, options] {
    command.chosen = [&command, options] { return list(command, *options); };
  });
}

void add_verify(CLI::App& group, Command& command) {
  CLI::App* added = group.add_subcommand("verify",
                                         "Has the coordinator read and hash again every chunk that "
                                         "it keeps; needs an admin's context");
  auto options = std::make_shared<ListOptions>();
  added->add_option("RUN", options->run, "its name or id; without: of all runs and datasets")
      ->type_name("");
  added->add_option("--object", options->object, "only this one, by the start of its name")
      ->check(is_prefix())
      ->type_name("HASH");
  added->footer(
      "Example:\n  skerry chunk verify fashion\nExits with status 8 if a chunk is damaged, and "
      "prints how to repair it. Training goes on meanwhile.\nThe coordinator serves no damaged "
      "chunk; `skerry run why` says what waits for it.\nNodes check each chunk as they read it.");
  added->callback([&command, options] {
    command.chosen = [&command, options] { return verify(command, options->run, options->object); };
  });
}

}  // namespace

void add_chunk_commands(CLI::App& root, Command& command) {
  CLI::App* group = root.add_subcommand(
      "chunk", "What runs are made of: checkpoints and files, where they are, and if whole");
  group->require_subcommand(1);
  add_list(*group, command);
  add_verify(*group, command);
}

}  // namespace skerry::cli
