// SPDX-License-Identifier: Apache-2.0
// doctor: what on this machine or on the way to the coordinator would keep a
// run from working; and version.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <ostream>

#include "base/cards.h"
#include "base/cuda_driver.h"
#include "base/text.h"
#include "base/try_training.h"
#include "base/unique_fd.h"
#include "cli/shell/command.h"
#include "cli/shell/exit_code.h"
#include "cli/shell/version.h"
#include "cli/shell/words.h"
#include "protocol/limits.h"
#include "protocol/token.h"
#include "storage/files.h"

namespace skerry::cli {
namespace {

constexpr std::uint64_t kLittleDisk = 5ULL << 30;
constexpr std::uint64_t kDiskSample = 32 << 20;
constexpr double kSlowDisk = 30e6;               // bytes a second
constexpr std::uint64_t kLinkSample = 16 << 20;  // the largest file that is fetched to measure
constexpr double kSlowLink = 1e6;                // bytes a second
constexpr std::int64_t kSkewMs = 5000;
constexpr std::chrono::milliseconds kSlowRoundTrip{500};
constexpr std::chrono::minutes kVersionLimit{
    2};  // LibTorch is gigabytes, on a disk that may be cold
constexpr std::chrono::minutes kStepLimit{10};

struct DoctorOptions {
  std::string folder = ".";
  std::string token;
};

struct Check {
  std::string name;
  std::string status;  // ok, warning, failed
  std::string found;
  std::string todo;  // what to do; empty where it is ok
};

std::string rate(double bytes_per_second) {
  return human_bytes(static_cast<std::uint64_t>(bytes_per_second)) + "/s";
}

Check check_engine(Command& command, std::string& version) {
  const Result<std::string> engine = command.around.find_program("skerry-engine");
  if (!engine.has_value()) {
    return {"engine", "warning", engine.error().message,
            "needed where a daemon trains, and for `dataset add` and `sample`: build it, or set "
            "SKERRY_ENGINE"};
  }
  const Result<int> ran = command.around.run_program({*engine, "--version"},
                                                     [&](const std::string& line) {
                                                       if (version.empty())
                                                         version = printable(line);
                                                     },
                                                     {.limit = kVersionLimit});
  if (!ran.has_value() || *ran != 0) {
    return {"engine", "failed",
            text(*engine, " does not start", ran.has_value() ? text(" (status ", *ran, ")") : ""),
            "its LibTorch may be missing: run `./dev setup` again"};
  }
  return {"engine", "ok", text(*engine, version.empty() ? "" : ", ", version), ""};
}

Check check_gpu(Command& command, const std::string& engine_version,
                const Result<std::vector<Card>>& cards) {
  if (!cards.has_value())
    return {"gpu", "failed", cards.error().message,
            "what the message says; a daemon would not start here"};
  if (cards->empty()) {
    return {"gpu", "warning", "CUDA shows no card here",
            "without a card the engine uses the CPU; else install the driver, or pass the card "
            "into the "
            "container"};
  }
  const std::string driver = command.around.driver();
  std::string found = text("driver ", driver);
  for (const Card& card : *cards)
    found += text("; ", printable(card.name), ", ", human_bytes(card.memory_bytes), ", ", card.id);
  if (const auto trouble = why_no_card(engine_version, driver)) {
    return {"gpu", "failed", text(found, "; ", trouble->found), trouble->todo};
  }
  return {"gpu", "ok", found, ""};
}

// A step of training on each card, since a card may be there that the engine
// has no kernels for.
Check check_training(Command& command, const std::vector<Card>& cards) {
  const Result<std::string> engine = command.around.find_program("skerry-engine");
  if (!engine.has_value()) return {"training", "failed", engine.error().message, ""};
  const RunProgram run = [&](const std::vector<std::string>& words, const OnLine& on_line,
                             const RunOptions& options) {
    return command.around.run_program(words, on_line, options);
  };
  const Result<std::vector<CardTrouble>> troubles =
      try_training(*engine, cards, run, {.limit = kStepLimit});
  if (!troubles.has_value()) return {"training", "failed", troubles.error().message, ""};
  Check check{"training", "ok", "", ""};
  for (const CardTrouble& trouble : *troubles) {
    check.status = "failed";
    check.found += text(check.found.empty() ? "" : "; ", trouble.found);
    check.todo = trouble.todo;
  }
  if (troubles->empty())
    check.found = cards.empty() ? "one step on the CPU"
                                : text("one step on each of ", cards.size(), " cards");
  return check;
}

// Bytes a second that reach the disk; nullopt where nothing can be written.
std::optional<double> write_speed(Command& command, const std::string& folder) {
  std::string path = folder + "/.skerry-doctor-XXXXXX";
  const UniqueFd fd(::mkstemp(path.data()));
  if (!fd) return std::nullopt;
  ::unlink(path.c_str());
  const std::string block(1 << 20, 'x');
  const auto start = command.around.uptime();
  for (std::uint64_t written = 0; written < kDiskSample; written += block.size()) {
    if (!storage::write_all(fd.get(), block, path).has_value()) return std::nullopt;
  }
  if (::fdatasync(fd.get()) != 0) return std::nullopt;
  const double seconds = std::chrono::duration<double>(command.around.uptime() - start).count();
  return kDiskSample / std::max(seconds, 1e-6);
}

Check check_disk(Command& command, const std::string& folder) {
  std::error_code error;
  const std::string place = std::filesystem::canonical(folder, error).string();
  if (error) {
    return {"disk", "failed", text(folder, ": ", error.message()),
            "--data names the folder that will hold the data: make it first"};
  }
  const auto space = std::filesystem::space(place, error);
  if (error)
    return {"disk", "warning", text("cannot ask for free space: ", error.message()),
            "is this folder there?"};
  std::string found = text(human_bytes(space.available), " free in ", place);
  if (space.available < kLittleDisk) {
    return {"disk", "warning", found,
            "a dataset or an ensemble may not fit: make room or work elsewhere"};
  }
  const std::optional<double> speed = write_speed(command, place);
  if (!speed)
    return {"disk", "failed", found + ", nothing can be written there",
            "use another folder (--data)"};
  found += ", writes " + rate(*speed);
  if (*speed < kSlowDisk)
    return {"disk", "warning", found, "commits will wait for it: use a faster disk"};
  return {"disk", "ok", found, ""};
}

// Without a key: what a firewall or a host that remaps ports breaks.
Check check_ports(Command& command, const protocol::Endpoints& endpoints) {
  std::string open, closed;
  for (const protocol::Endpoint endpoint : protocol::kAllEndpoints) {
    const std::string& url = endpoints.of(endpoint);
    const Result<std::chrono::nanoseconds> reached = command.around.reach(url);
    const std::string who = text(protocol::to_string(endpoint), " ", url);
    if (reached.has_value()) {
      open += text(open.empty() ? "" : ", ", who, " in ", human_duration(*reached));
    } else {
      closed += text(closed.empty() ? "" : ", ", who, " (", reached.error().message, ")");
    }
  }
  if (closed.empty()) return {"ports", "ok", open, ""};
  return {"ports", "failed", closed,
          "is the coordinator running, does its firewall let these ports in, is --advertise what "
          "others dial?"};
}

// A file of a dataset that is worth timing.
std::optional<pb::DatasetFile> sample_file(AdminClient& client) {
  pb::AdminRequest request;
  request.mutable_dataset_list();
  const Result<pb::AdminReply> list = client.ask(request);
  std::optional<pb::DatasetFile> best;
  if (!list.has_value()) return best;
  for (const pb::DatasetInfo& dataset : list->datasets().datasets()) {
    if (dataset.state() != "ready") continue;
    const Result<pb::AdminReply> shown =
        client.ask(named(&pb::AdminRequest::mutable_dataset_show, dataset.name()));
    if (!shown.has_value() || shown->datasets().datasets_size() != 1) continue;
    for (const pb::DatasetFile& file : shown->datasets().datasets(0).files()) {
      const bool larger = !best || file.object().bytes() > best->object().bytes();
      if (larger && file.object().bytes() <= kLinkSample) best = file;
    }
  }
  return best;
}

// How fast chunks come from the coordinator; none where it has no dataset to
// try it with.
std::optional<Check> check_bandwidth(Command& command, AdminClient& client) {
  const std::optional<pb::DatasetFile> file = sample_file(client);
  if (!file) return std::nullopt;
  const Result<Hash> manifest = Hash::from_raw(file->object().manifest());
  std::string scratch =
      command.around.environment("TMPDIR").value_or("/tmp") + "/skerry-doctor-XXXXXX";
  if (!manifest.has_value() || ::mkdtemp(scratch.data()) == nullptr) return std::nullopt;
  const auto start = command.around.uptime();
  Result<void> fetched;
  {
    exchange::FolderChunkStore chunk_store(scratch);
    fetched =
        client.fetch({{*manifest, file->object().manifest_bytes(), {}, file->object().bytes()}},
                     chunk_store, [](std::uint64_t, std::uint64_t) {});
  }
  const double seconds = std::chrono::duration<double>(command.around.uptime() - start).count();
  std::error_code ignored;
  std::filesystem::remove_all(scratch, ignored);
  if (!fetched.has_value()) {
    return Check{"bandwidth", "failed", fetched.error().message, "is its blob port reachable?"};
  }
  const double speed = static_cast<double>(file->object().bytes()) / std::max(seconds, 1e-6);
  const std::string found =
      text(rate(speed), " from the coordinator (", human_bytes(file->object().bytes()), " tried)");
  if (speed >= kSlowLink) return Check{"bandwidth", "ok", found, ""};
  return Check{
      "bandwidth", "warning", found,
      "shards and checkpoints will take long: see `run create --example` on round_seconds"};
}

// The coordinator's clock against ours, from the middle of a round trip.
Check check_clock(std::int64_t coordinator_unix_ms, std::int64_t before, std::int64_t after) {
  if (coordinator_unix_ms == 0)
    return {"clock", "warning", "the coordinator did not say what time it has", ""};
  const std::int64_t skew = coordinator_unix_ms - (before + after) / 2;
  const std::string found =
      text("the coordinator's clock is ", std::abs(skew), " ms ", skew < 0 ? "behind" : "ahead");
  if (std::abs(skew) > kSkewMs) {
    return {"clock", "warning", found,
            "tokens and certificates carry times: set both clocks by NTP"};
  }
  return {"clock", "ok", found, ""};
}

// That the two can speak with each other was settled when the connection
// greeted.
Check check_versions(const pb::StatusReply& status) {
  const std::string found =
      text("this is ", own_software(), ", the coordinator ", or_dash(printable(status.software())));
  if (status.version() == own_version()) return {"versions", "ok", found, ""};
  return {"versions", "warning", found + ": they differ", "use the same release on both sides"};
}

void check_coordinator(Command& command, std::vector<Check>& checks) {
  const Result<AdminClient*> client = command.client();
  if (!client.has_value()) {
    checks.push_back({"coordinator", "failed", client.error().message,
                      "on a machine that only trains: `skerry doctor --token TOKEN`, or --context "
                      "DATA/node.toml"});
    return;
  }
  checks.push_back(check_ports(command, (*client)->place().endpoints));
  if ((*client)->place().role == pb::ROLE_NODE) return;  // it may not ask more
  pb::AdminRequest request;
  request.mutable_status();
  // The first question pays for the handshake, the second is the round trip.
  Result<pb::AdminReply> reply = (*client)->ask(request);
  const auto start = command.around.uptime();
  const std::int64_t before = command.around.unix_ms();
  if (reply.has_value()) reply = (*client)->ask(request);
  const std::int64_t after = command.around.unix_ms();
  const auto round_trip = command.around.uptime() - start;
  const std::string where = (*client)->place().endpoints.control;
  if (!reply.has_value()) {
    checks.push_back({"coordinator", "failed", reply.error().message,
                      text("is it running, and are its three ports open? (", where, ")")});
    return;
  }
  const pb::StatusReply& status = reply->status();
  const bool slow = round_trip > kSlowRoundTrip, full = reply->lacks_room();
  std::string found = text(where, " answers in ",
                           fixed(std::chrono::duration<double, std::milli>(round_trip).count(), 1),
                           " ms, ", status.nodes(), " nodes, ", status.runs(), " runs, ",
                           human_bytes(status.disk_free_bytes()), " free");
  if (status.idle_dollars() > 0)
    found += text(", ", fixed(status.idle_dollars(), 2), " dollars spent on idle slots");
  if (status.recovering()) found += ", in its recovery window after a start";
  if (full) found += "; its disk is full";
  checks.push_back({"coordinator",
                    full                          ? "failed"
                    : slow || status.recovering() ? "warning"
                                                  : "ok",
                    found,
                    full   ? "free space there: until then changes are refused and commits wait"
                    : slow ? "the way to it is slow: heartbeats want less"
                    : status.recovering() ? "wait a few seconds: leases are left alone until then"
                                          : ""});
  checks.push_back(check_versions(status));
  checks.push_back(check_clock(status.now_unix_ms(), before, after));
  if (auto bandwidth = check_bandwidth(command, **client)) checks.push_back(std::move(*bandwidth));
}

// A token says where the coordinator is; it is not spent.
void check_token(Command& command, const std::string& words, std::vector<Check>& checks) {
  const Result<protocol::JoinToken> token = protocol::parse_token(words, command.around.unix_ms());
  if (!token.has_value()) {
    checks.push_back(
        {"token", "failed", token.error().message, "ask the administrator for a new one"});
    return;
  }
  checks.push_back(
      {"token", "ok",
       text("of role ", role_name(token->role), ", until ", utc_time(token->expires_unix_ms)), ""});
  checks.push_back(check_ports(command, token->endpoints));
}

Result<int> examine(Command& command, const DoctorOptions& options) {
  std::string engine_version;
  std::vector<Check> checks = {check_engine(command, engine_version)};
  // Forks: before a connection has threads.
  const Result<std::vector<Card>> cards = command.around.cards();
  checks.push_back(check_gpu(command, engine_version, cards));
  if (cards.has_value() && checks.front().status == "ok" && checks.back().status != "failed")
    checks.push_back(check_training(command, *cards));
  checks.push_back(check_disk(command, options.folder));
  if (options.token.empty()) {
    check_coordinator(command, checks);
  } else {
    check_token(command, options.token, checks);
  }
  bool healthy = true;
  Json items = Json::array();
  Table table({"CHECK", "STATUS", "FOUND", "TO DO"});
  for (const Check& check : checks) {
    healthy = healthy && check.status != "failed";
    items.push_back({{"name", check.name},
                     {"status", check.status},
                     {"found", printable(check.found)},
                     {"todo", text_or_null(check.todo)}});
    table.add({check.name,
               {check.status, paint_of_state(check.status)},
               check.found,
               or_dash(check.todo)});
  }
  if (command.json()) {
    print_object(command.out(), {{"healthy", healthy}, {"items", std::move(items)}});
  } else {
    table.print(command.out(), command.colour());
  }
  return healthy ? kExitOk : kExitUnhealthy;
}

Result<int> show_version(Command& command) {
  const std::string protocol = text(protocol::kVersionMajor, ".", protocol::kVersionMinor);
  if (command.json()) {
    print_object(command.out(), {{"software", own_software()}, {"protocol", protocol}});
  } else {
    command.out() << own_software() << " (protocol " << protocol << ")\n";
  }
  return kExitOk;
}

}  // namespace

void add_doctor_commands(CLI::App& root, Command& command) {
  CLI::App* doctor = root.add_subcommand("doctor", "Looks for what would keep a run from working");
  auto options = std::make_shared<DoctorOptions>();
  doctor->add_option("--data", options->folder, "the folder that will hold the data")
      ->capture_default_str()
      ->type_name("DIR");
  doctor
      ->add_option("--token", options->token,
                   "look at the way to this token's coordinator, without using it up")
      ->type_name("TOKEN");
  doctor->footer(
      "Example:\n  skerry doctor\n  skerry doctor --token TOKEN --data /workspace    # on a rented "
      "machine, "
      "before it joins\n"
      "Looks at the engine, GPU and driver, disk, ports, the coordinator's answer, versions, "
      "clocks and "
      "bandwidth, and has the engine take one small training step on each card, or on the CPU.\n"
      "Exit status 8 where something failed.");
  doctor->callback([&command, options] {
    command.chosen = [&command, options] { return examine(command, *options); };
  });
  CLI::App* version = root.add_subcommand("version", "Prints the version");
  version->footer("Example:\n  skerry version");
  version->callback([&command] { command.chosen = [&command] { return show_version(command); }; });
}

}  // namespace skerry::cli
