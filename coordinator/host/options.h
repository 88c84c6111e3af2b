// SPDX-License-Identifier: Apache-2.0
// How the coordinator is configured: flags, then SKERRY_*, then a TOML file,
// then defaults.
#pragma once

#include <string>
#include <variant>

#include "base/log.h"
#include "base/result.h"
#include "coordinator/core/config.h"

namespace skerry::coordinator {

enum class Command { kServe, kBackup, kRestore };

struct Options {
  Command command = Command::kServe;
  std::string data;
  std::string copy;      // of backup and restore: a folder, or s3://…
  bool partial = false;  // restore from a bucket without all objects
  std::string identity;  // to restore from a bucket, which holds no secret
  bool keep_tokens = false;
  bool fresh = false;  // restore without a copy: a fresh store under the identity that is there
  std::string listen = "127.0.0.1:7600";
  std::string advertise;  // empty: as listen
  std::string name = "skerry";
  LogLevel log_level = LogLevel::kInfo;
  double lease_seconds = 6;
  std::size_t connections = 512;   // on each endpoint
  std::uint64_t upload_limit = 0;  // of chunks, bytes a second to all nodes and people; 0: none
  // Of the bucket that mirrors the store; without a URL there is none.
  std::string store, store_endpoint, store_region = "us-east-1", store_keys;
};

// Whether a copy is in a bucket.
inline bool is_bucket(const std::string& copy) { return copy.starts_with("s3://"); }

// What to print in place of running: --help and --version.
struct PrintAndExit {
  std::string words;
};

// kInvalid with what is wrong, and for a file with its line.
Result<std::variant<Options, PrintAndExit>> parse_options(int count, const char* const* words);

// The core's times for a lease of this length, in the proportions of the
// default.
Config config_for(double lease_seconds);

}  // namespace skerry::coordinator
