// SPDX-License-Identifier: Apache-2.0
// How a person or a container configures the daemon: flags, then SKERRY_*, then
// a TOML file, then defaults.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "base/log.h"
#include "base/result.h"
#include "daemon/host/notice_watcher.h"

namespace skerry::daemon {

enum class Command {
  kServe,
  kRouter,  // writes the router of a run from what lies on the disk
  kVerify,  // hashes again what lies on the disk
};

struct Options {
  Command command = Command::kServe;
  std::string run;  // of router: a name or an id
  std::string out;  // of router: the folder to make
  bool json = false;
  std::string data;
  std::string token;   // the text or file:PATH; empty: none
  std::string name;    // empty: from the host's
  std::string engine;  // empty: beside this program, else on PATH
  std::string host_label;
  std::string peer_listen = "0.0.0.0:0";  // HOST:PORT, or "off"
  std::string peer_advertise;             // HOST:PORT; empty: as the coordinator sees it
  unsigned slots = 0;                     // 0: one a GPU, or one
  unsigned drain_seconds = 20;            // 4 where the environment names a RunPod machine
  double price = 0;                       // of the machine, dollars an hour; 0: unknown
  double idle_minutes = 0;                // without work, before idle_exec runs
  std::string idle_exec;                  // for /bin/sh -c; empty: none
  Spot spot = Spot::kAuto;
  std::string metadata;  // http://HOST:PORT of a metadata server; empty: the platform's
  unsigned join_seconds = 60;
  std::uint64_t upload_limit = 0;    // bytes a second to all peers and the coordinator; 0: none
  std::uint64_t download_limit = 0;  // the same from them
  LogLevel log_level = LogLevel::kInfo;
};

// What to print in place of running: --help and --version.
struct PrintAndExit {
  std::string words;
};

// kInvalid with what is wrong, and for a file with its line.
Result<std::variant<Options, PrintAndExit>> parse_options(int count, const char* const* words);

}  // namespace skerry::daemon
