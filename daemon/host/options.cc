// SPDX-License-Identifier: Apache-2.0
#include "daemon/host/options.h"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <vector>

#include "base/clean_text.h"
#include "base/text.h"
#include "base/toml.h"
#include "exchange/rate.h"
#include "protocol/endpoints.h"
#include "protocol/limits.h"

namespace skerry::daemon {
namespace {

constexpr unsigned kMostSeconds = 3600;
constexpr std::size_t kShownBytes = 64;  // of a bad value, in a message
constexpr double kMostIdleMinutes = 100'000;
constexpr unsigned kRunPodSeconds = 4;  // it kills 5 s after SIGTERM

const std::map<std::string, Spot> kSpots = {{"auto", Spot::kAuto},
                                            {"aws", Spot::kAws},
                                            {"gcp", Spot::kGcp},
                                            {"azure", Spot::kAzure},
                                            {"off", Spot::kOff}};

struct Raw {
  Options options;
  std::string output = "table";
  std::string config;
  std::string log_level = "info";
  std::string spot = "auto";
  std::string upload_limit = "off";
  std::string download_limit = "off";
};

// A setting that a flag, the environment or the file may give.
struct Setting {
  CLI::Option* flag = nullptr;
  std::function<bool(const toml::node&)> from_file;
};

template <class T>
std::function<bool(const toml::node&)> setter(T& target) {
  return [&target](const toml::node& node) {
    if constexpr (std::is_same_v<T, std::string>) {
      const auto value = node.value_exact<std::string>();
      if (value) target = *value;
      return value.has_value();
    } else if constexpr (std::is_same_v<T, double>) {
      const auto value = node.value<double>();
      if (value) target = *value;
      return value.has_value();
    } else {
      const auto value = node.value_exact<std::int64_t>();
      if (!value || *value < 0 || *value > kMostSeconds) return false;
      target = static_cast<T>(*value);
      return true;
    }
  };
}

Result<void> apply_file(const std::string& path, const std::map<std::string, Setting>& settings) {
  ASSIGN_OR_RETURN(const toml::table table, read_toml(path));
  for (const auto& [key, node] : table) {
    const auto at = settings.find(std::string(key.str()));
    const auto line = node.source().begin.line;
    if (at == settings.end())
      return fail(ErrorCode::kInvalid, text(path, ":", line, ": unknown key ", key.str()));
    if (at->second.flag->count() > 0) continue;  // a flag or the environment said so
    if (!at->second.from_file(node)) {
      return fail(ErrorCode::kInvalid, text(path, ":", line, ": ", key.str(),
                                            ": not a value of the right kind or range"));
    }
  }
  return {};
}

auto named(const char* flag) {
  return [flag](const Error& error) { return fail(error.code, text(flag, ": ", error.message)); };
}

std::string default_config() {
  std::vector<std::filesystem::path> places;
  if (const char* home = std::getenv("XDG_CONFIG_HOME"))
    places.emplace_back(std::filesystem::path(home) / "skerry");
  places.emplace_back("/etc/skerry");
  for (const auto& place : places) {
    std::error_code ignored;
    if (std::filesystem::exists(place / "skerryd.toml", ignored))
      return (place / "skerryd.toml").string();
  }
  return {};
}

std::map<std::string, Setting> add_settings(CLI::App& app, Raw& raw) {
  std::map<std::string, Setting> settings;
  const auto add = [&](const std::string& name, auto& target, const std::string& help) {
    std::string variable = "SKERRY_";
    std::string key;
    for (const char c : name)
      variable += c == '-' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
    for (const char c : name) key += c == '-' ? '_' : c;
    CLI::Option* flag = app.add_option("--" + name, target, help)->envname(variable);
    settings[key] = {flag, setter(target)};
    return flag;
  };
  add("data", raw.options.data, "folder for identity, checkpoints and shards (needed)");
  add("name", raw.options.name, "name of this node [host name and the start of its id]");
  add("engine", raw.options.engine,
      "the engine's program [skerry-engine beside skerryd, else on PATH]");
  add("host-label", raw.options.host_label,
      "what this machine shares with others that would die with it: copies of checkpoints are kept "
      "apart "
      "[the machine]");
  add("peer-listen", raw.options.peer_listen,
      "HOST:PORT at which other nodes may fetch from this one; port 0 picks one; off: it only "
      "dials out "
      "[0.0.0.0:0]");
  add("peer-advertise", raw.options.peer_advertise,
      "HOST:PORT that other nodes are to dial, where it differs [as the coordinator sees this "
      "node]");
  add("upload-limit", raw.upload_limit,
      "most that chunks may take of the line out, to other nodes and the coordinator together: "
      "16MB/s, "
      "100Mbit/s [off]");
  add("download-limit", raw.download_limit, "the same of the line in [off]");
  add("slots", raw.options.slots, "experts trained at once [one a GPU, or one]")
      ->check(CLI::Range(0U, 64U));
  add("drain-seconds", raw.options.drain_seconds,
      "most time to commit and return leases after SIGTERM, SIGUSR1 or a spot notice [20; on "
      "RunPod 4]")
      ->check(CLI::Range(0U, kMostSeconds));
  add("spot", raw.spot,
      "auto, aws, gcp, azure or off: whose metadata server announces the end of this machine; "
      "auto asks all three for 1 s [auto]");
  add("metadata", raw.options.metadata,
      "http://HOST:PORT of a metadata server, for tests [the cloud's]");
  add("price", raw.options.price,
      "what this machine costs, dollars an hour, for budgets and sums [0: unknown]");
  add("idle-minutes", raw.options.idle_minutes,
      "time without work before --idle-exec runs [no default]");
  add("idle-exec", raw.options.idle_exec,
      "a command for /bin/sh that ends the rental of this machine, such as \"shutdown -h now\"; "
      "it runs once when no run waits and no copy rests on this node alone, and is killed after "
      "60 s");
  add("join-seconds", raw.options.join_seconds, "how long to try to enrol [60]")
      ->check(CLI::Range(1U, kMostSeconds));
  add("log-level", raw.log_level, "debug, info, warning or error [info]");
  return settings;
}

Result<void> check_money(const Options& options) {
  const auto bad = [](const char* flag, const char* expected, double found) {
    return fail(ErrorCode::kInvalid, text(flag, ": expected ", expected, ", found ", found));
  };
  if (!(options.price >= 0 && options.price <= protocol::kPriceMost))
    return bad("--price", "dollars an hour from 0 to 10000", options.price);
  if (!(options.idle_minutes >= 0 && options.idle_minutes <= kMostIdleMinutes))
    return bad("--idle-minutes", "minutes from 0 to 100000", options.idle_minutes);
  if ((options.idle_minutes > 0) == options.idle_exec.empty()) {
    return fail(ErrorCode::kInvalid,
                "--idle-minutes and --idle-exec: expected both or neither, found one");
  }
  return {};
}

void add_output(CLI::App& command, Raw& raw) {
  command.add_option("-o,--output", raw.output, "table or json [table]")
      ->check(CLI::IsMember({"table", "json"}))
      ->type_name("");
}

void add_router(CLI::App& app, Raw& raw) {
  CLI::App* router =
      app.add_subcommand("router",
                         "write a run's router, and where each expert's best checkpoint "
                         "lives, from the records and files on this "
                         "node's disk alone; a daemon may be running on it");
  router->fallthrough();
  router->add_option("RUN", raw.options.run, "its name or id")->required()->type_name("");
  router->add_option("--out", raw.options.out, "the folder to make; must not exist")
      ->required()
      ->type_name("DIR");
  add_output(*router, raw);
  router->footer(
      "Example:\n  skerryd router fashion --data /var/lib/skerry --out fashion-router\nThe folder "
      "holds what "
      "an "
      "ensemble's router/ holds, and experts.json. Records are saved each half minute.");
  router->callback([&raw] { raw.options.command = Command::kRouter; });
}

void add_verify(CLI::App& app, Raw& raw) {
  CLI::App* verify = app.add_subcommand(
      "verify",
      "read and hash again every chunk on this node's disk; a daemon may be running on it");
  verify->fallthrough();
  add_output(*verify, raw);
  verify->footer(
      "Example:\n  skerryd verify --data /var/lib/skerry\nLeaves with 8 where something is "
      "damaged, and "
      "names it: the "
      "daemon drops it and fetches again what it needs.");
  verify->callback([&raw] { raw.options.command = Command::kVerify; });
}

}  // namespace

Result<std::variant<Options, PrintAndExit>> parse_options(int count, const char* const* words) {
  Raw raw;
  if (std::getenv("RUNPOD_POD_ID") != nullptr) raw.options.drain_seconds = kRunPodSeconds;
  CLI::App app(
      "The node daemon of Skerry: joins a coordinator and trains the experts it is given.\n"
      "Every option can be given as SKERRY_NAME in the environment, or as name in a TOML file.",
      "skerryd");
  app.set_version_flag("--version", std::string("skerryd ") + SKERRY_VERSION);
  const std::map<std::string, Setting> settings = add_settings(app, raw);
  app.add_option("--config", raw.config, "TOML file [/etc/skerry/skerryd.toml where it exists]")
      ->envname("SKERRY_CONFIG");
  CLI::App* join =
      app.add_subcommand("join", "enrol with a token, and run; on an enrolled folder, just run");
  join->fallthrough();
  join->add_option("token", raw.options.token, "the token, or file:PATH [SKERRY_TOKEN]");
  add_router(app, raw);
  add_verify(app, raw);
  app.require_subcommand(0, 1);
  try {
    app.parse(count, words);
  } catch (const CLI::Success& success) {
    std::ostringstream out;
    app.exit(success, out, out);
    return std::variant<Options, PrintAndExit>(PrintAndExit{std::move(out).str()});
  } catch (const CLI::Error& error) {
    return fail(ErrorCode::kInvalid, text(error.what(), " (skerryd --help lists what there is)"));
  }
  if (const std::string path = raw.config.empty() ? default_config() : raw.config; !path.empty()) {
    TRY(apply_file(path, settings));
  }
  if (const char* token = std::getenv("SKERRY_TOKEN");
      token != nullptr && raw.options.token.empty()) {
    raw.options.token = token;
  }
  ASSIGN_OR_RETURN(raw.options.log_level, parse_log_level(raw.log_level));
  if (raw.options.peer_listen != "off") {
    TRY(protocol::parse_host_port(raw.options.peer_listen).map_error(named("--peer-listen")));
  }
  if (!raw.options.peer_advertise.empty()) {
    TRY(protocol::parse_host_port(raw.options.peer_advertise).map_error(named("--peer-advertise")));
  }
  ASSIGN_OR_RETURN(raw.options.upload_limit,
                   exchange::parse_rate(raw.upload_limit).map_error(named("--upload-limit")));
  ASSIGN_OR_RETURN(raw.options.download_limit,
                   exchange::parse_rate(raw.download_limit).map_error(named("--download-limit")));
  const auto spot = kSpots.find(raw.spot);
  if (spot == kSpots.end()) {
    return fail(ErrorCode::kInvalid, text("--spot: expected auto, aws, gcp, azure or off, found ",
                                          clean_text(raw.spot, kShownBytes)));
  }
  raw.options.spot = spot->second;
  if (!raw.options.metadata.empty() && !raw.options.metadata.starts_with("http://"))
    return fail(ErrorCode::kInvalid, "--metadata: expected http://HOST:PORT");
  TRY(check_money(raw.options));
  raw.options.json = raw.output == "json";
  if (raw.options.data.empty())
    return fail(ErrorCode::kInvalid, "--data DIR (or SKERRY_DATA) is needed");
  return std::variant<Options, PrintAndExit>(std::move(raw.options));
}

}  // namespace skerry::daemon
