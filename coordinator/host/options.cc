// SPDX-License-Identifier: Apache-2.0
#include "coordinator/host/options.h"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>

#include "base/text.h"
#include "base/toml.h"
#include "exchange/rate.h"

namespace skerry::coordinator {
namespace {

constexpr char kDefaultFile[] = "/etc/skerry/coordinator.toml";
constexpr double kMinLeaseSeconds = 0.2;
constexpr double kMaxLeaseSeconds = 3600;

// One setting: its name in a file, its variable, and how its text is taken
// over.
struct Setting {
  std::string key;
  std::string variable;
  std::string flag;  // its value, where it was given
  std::function<Result<void>(const std::string&)> set;
};

Error bad(const std::string& what) { return fail(ErrorCode::kInvalid, what); }

Result<void> set_number(const std::string& text_given, double lowest, double highest,
                        const char* what, double& out) {
  char* end = nullptr;
  const double value = std::strtod(text_given.c_str(), &end);
  if (text_given.empty() || *end != '\0' || !(value >= lowest && value <= highest)) {
    return bad(text(what, " must be a number from ", lowest, " to ", highest, ", not \"",
                    text_given, '"'));
  }
  out = value;
  return {};
}

std::vector<Setting> settings(Options& options) {
  const auto as_text = [](std::string& out) {
    return [&out](const std::string& value) -> Result<void> {
      out = value;
      return {};
    };
  };
  return {
      {"data", "SKERRY_DATA", "", as_text(options.data)},
      {"listen", "SKERRY_LISTEN", "", as_text(options.listen)},
      {"advertise", "SKERRY_ADVERTISE", "", as_text(options.advertise)},
      {"name", "SKERRY_NAME", "", as_text(options.name)},
      {"log_level", "SKERRY_LOG_LEVEL", "",
       [&options](const std::string& value) -> Result<void> {
         ASSIGN_OR_RETURN(options.log_level, parse_log_level(value));
         return {};
       }},
      {"lease_seconds", "SKERRY_LEASE_SECONDS", "",
       [&options](const std::string& value) {
         return set_number(value, kMinLeaseSeconds, kMaxLeaseSeconds, "lease_seconds",
                           options.lease_seconds);
       }},
      {"connections", "SKERRY_CONNECTIONS", "",
       [&options](const std::string& value) -> Result<void> {
         double count = 0;
         TRY(set_number(value, 4, 100'000, "connections", count));
         options.connections = static_cast<std::size_t>(count);
         return {};
       }},
      {"upload_limit", "SKERRY_UPLOAD_LIMIT", "",
       [&options](const std::string& value) -> Result<void> {
         ASSIGN_OR_RETURN(options.upload_limit,
                          exchange::parse_rate(value).map_error([](const Error& error) {
                            return bad("upload_limit: " + error.message);
                          }));
         return {};
       }},
      {"store", "SKERRY_STORE", "", as_text(options.store)},
      {"store_endpoint", "SKERRY_STORE_ENDPOINT", "", as_text(options.store_endpoint)},
      {"store_region", "SKERRY_STORE_REGION", "", as_text(options.store_region)},
      {"store_keys", "SKERRY_STORE_KEYS", "", as_text(options.store_keys)},
  };
}

// A value of the file as the text that a flag would have.
std::string as_flag(const toml::node& value) {
  if (const auto words = value.value<std::string>()) return *words;
  if (const auto number = value.value<double>()) return text(*number);
  return "";
}

// A table of the file: its keys are settings whose names begin with its own.
// `url` is the table's own setting.
constexpr char kTable[] = "store";

Result<void> read_table(const std::string& path, const toml::table& table,
                        const std::string& prefix, std::vector<Setting>& all) {
  for (const auto& [key, value] : table) {
    const std::string shown =
        prefix.empty() ? std::string(key.str()) : text(prefix, '.', key.str());
    if (prefix.empty() && key.str() == kTable && value.is_table()) {
      TRY(read_table(path, *value.as_table(), kTable, all));
      continue;
    }
    std::string name(key.str());
    if (!prefix.empty()) name = name == "url" ? prefix : prefix + '_' + name;
    const auto setting =
        std::find_if(all.begin(), all.end(), [&](const Setting& each) { return each.key == name; });
    const std::string where = text(path, ':', value.source().begin.line, ": ");
    if (setting == all.end()) return bad(text(where, "unknown key \"", shown, '"'));
    if (!value.is_string() && !value.is_number())
      return bad(text(where, shown, " must be a text or a number"));
    if (const auto taken = setting->set(as_flag(value)); !taken)
      return bad(where + taken.error().message);
  }
  return {};
}

Result<void> read_file(const std::string& path, std::vector<Setting>& all) {
  ASSIGN_OR_RETURN(const toml::table table, read_toml(path));
  return read_table(path, table, "", all);
}

const std::map<std::string, std::string> kHelp = {
    {"data", "folder of everything that is kept; made on the first start"},
    {"listen",
     "HOST:PORT; the next two ports serve control and blob; port 0 picks (127.0.0.1:7600)"},
    {"advertise", "HOST:PORT or HOST:P1,P2,P3 that others dial, where it differs"},
    {"name", "of this coordinator, for people (skerry)"},
    {"log_level", "debug, info, warning or error (info)"},
    {"lease_seconds", "how long a node may be silent (6)"},
    {"connections", "most connections on each endpoint (512)"},
    {"upload_limit",
     "most that chunks may take of the line out, to all together: 16MB/s, 100Mbit/s (off)"},
    {"store",
     "s3://BUCKET/PREFIX that mirrors state and objects, from which `restore` begins anew; in a "
     "file, url of [store]"},
    {"store_endpoint",
     "https://HOST of an S3-compatible store; in a file, endpoint of [store] (AWS)"},
    {"store_region", "its region; in a file, region of [store] (us-east-1)"},
    {"store_keys",
     "TOML file of access_key_id and secret_access_key, mode 600; in a file, keys of [store] "
     "(AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)"},
};

// From the file, then the environment, then the flags: the last one wins.
Result<void> read_settings(std::string file, std::vector<Setting>& all) {
  if (file.empty()) {
    if (const char* named = std::getenv("SKERRY_CONFIG")) file = named;
  }
  std::error_code ignored;
  if (file.empty() && std::filesystem::exists(kDefaultFile, ignored)) file = kDefaultFile;
  if (!file.empty()) TRY(read_file(file, all));
  for (const Setting& setting : all) {
    if (const char* value = std::getenv(setting.variable.c_str());
        value != nullptr && *value != '\0') {
      if (const auto taken = setting.set(value); !taken)
        return bad(setting.variable + ": " + taken.error().message);
    }
  }
  for (const Setting& setting : all) {
    if (!setting.flag.empty()) TRY(setting.set(setting.flag));
  }
  return {};
}

struct CopyCommands {
  CLI::App *backup, *restore;
};

CopyCommands add_copy_commands(CLI::App& app, Options& options) {
  CLI::App* backup = app.add_subcommand(
      "backup", "copies the data folder to COPY; the coordinator may be running");
  backup
      ->add_option("COPY", options.copy,
                   "a folder that does not exist yet, or s3://BUCKET/PREFIX, which gets what it "
                   "lacks and loses what the state no longer names")
      ->required();
  backup->footer(
      "A damaged object does not stop a backup. The backup keeps everything else, names what it "
      "lacks,\n"
      "and exits with status 8.\n\n"
      "A bucket never holds the coordinator's identity: keep a copy of DATA/identity elsewhere.\n\n"
      "Examples:\n  skerry-coordinator backup /backup/monday --data /var/lib/skerry-coordinator\n"
      "  skerry-coordinator restore /backup/monday --data /var/lib/skerry-restored\n"
      "  skerry-coordinator restore s3://models/skerry --identity identity --data "
      "/var/lib/skerry-restored");
  CLI::App* restore = app.add_subcommand(
      "restore",
      "makes the data folder anew from the backup in COPY; leases of later epochs are fenced");
  restore->add_option("COPY", options.copy, "a backup: a folder, or s3://BUCKET/PREFIX");
  restore->add_option("--identity", options.identity,
                      "of a bucket: the identity file of the coordinator that wrote it");
  restore->add_flag("--partial", options.partial,
                    "of a bucket: also without the objects that it lacks");
  restore->add_flag(
      "--fresh", options.fresh,
      "without a backup: begins a fresh store under the identity in --data and keeps what was "
      "there "
      "in DATA/damaged-N; nodes come back by themselves, `skerry run adopt` takes runs back");
  restore->add_flag(
      "--keep-tokens", options.keep_tokens,
      "join tokens made before the restore stay valid; their uses since the backup are forgotten");
  return {backup, restore};
}

// What only one of the commands takes, or only one kind of copy.
Result<void> check_copy(const Options& options) {
  const bool restores = options.command == Command::kRestore;
  if (restores && options.copy.empty() != options.fresh)
    return bad("restore needs either a backup or --fresh; see skerry-coordinator restore --help");
  if (restores && is_bucket(options.copy) && options.identity.empty())
    return bad(
        "a bucket holds no identity: name a copy of the coordinator's identity file with "
        "--identity");
  if (!options.identity.empty() && !is_bucket(options.copy))
    return bad("--identity is of a restore from s3://…; a folder holds its identity");
  return {};
}

}  // namespace

Config config_for(double lease_seconds) {
  Config config;
  const auto lease =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(lease_seconds));
  config.lease = lease;
  config.grace = lease / 3;
  config.heartbeat = std::min(config.heartbeat, lease / 5);
  config.reconnect = std::min(config.reconnect, lease / 2);
  config.recall_limit = 5 * lease;
  config.recall_least = lease;
  return config;
}

Result<std::variant<Options, PrintAndExit>> parse_options(int count, const char* const* words) {
  Options options;
  std::vector<Setting> all = settings(options);
  CLI::App app("Keeps the roster, runs, leases and commits of a Skerry fleet.",
               "skerry-coordinator");
  app.set_version_flag("--version", std::string("skerry-coordinator ") + SKERRY_VERSION);
  for (Setting& setting : all) {
    std::string flag = "--" + setting.key;
    std::replace(flag.begin(), flag.end(), '_', '-');
    app.add_option(flag, setting.flag, kHelp.at(setting.key) + " [" + setting.variable + "]");
  }
  std::string file;
  app.add_option("--config", file,
                 std::string("TOML file with the same keys (") + kDefaultFile +
                     " where there is one) [SKERRY_CONFIG]");
  app.fallthrough();
  const CopyCommands copies = add_copy_commands(app, options);
  try {
    app.parse(count, words);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {
      const bool version = dynamic_cast<const CLI::CallForVersion*>(&error) != nullptr;
      return std::variant<Options, PrintAndExit>(
          PrintAndExit{version ? std::string(error.what()) + "\n" : app.help()});
    }
    return bad(text(error.what(), "; see skerry-coordinator --help"));
  }
  if (copies.backup->parsed()) options.command = Command::kBackup;
  if (copies.restore->parsed()) options.command = Command::kRestore;
  TRY(check_copy(options));

  TRY(read_settings(file, all));
  if (options.data.empty())
    return bad("--data DIR is needed: where the coordinator keeps its state");
  return std::variant<Options, PrintAndExit>(std::move(options));
}

}  // namespace skerry::coordinator
