// SPDX-License-Identifier: Apache-2.0
// A node's data folder: its lock, its identity and what it was told at
// enrolment. Used before the event loop; blocks.
#pragma once

#include <filesystem>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "protocol/context.h"
#include "protocol/identity.h"

namespace skerry::daemon {

// Where things lie in it.
class DataPaths {
 public:
  explicit DataPaths(std::filesystem::path path) : path_(std::move(path)) {}
  std::string store() const { return (path_ / "store").string(); }
  std::string objects() const { return (path_ / "objects").string(); }
  std::filesystem::path context_file() const { return path_ / "node.toml"; }
  std::filesystem::path identity_file() const { return path_ / "identity"; }
  // What `skerryd verify` found damaged (daemon/host/verify.h).
  std::string distrusted() const { return (path_ / "distrusted").string(); }
  const std::filesystem::path& path() const { return path_; }
  bool is_enrolled() const {
    std::error_code ignored;
    return std::filesystem::exists(context_file(), ignored);
  }

 private:
  std::filesystem::path path_;
};

class DataFolder : public DataPaths {
 public:
  // Creates the folder and takes its lock. kConflict: another daemon runs on
  // it. kUnauthorised: no permission.
  static Result<DataFolder> claim(const std::filesystem::path& path);

 private:
  DataFolder(std::filesystem::path path, UniqueFd lock)
      : DataPaths(std::move(path)), lock_(std::move(lock)) {}
  UniqueFd lock_;
};

struct Membership {
  protocol::Identity identity;
  protocol::Context context;
};

// Enrols with the token where that has not happened; on an enrolled folder the
// token only brings newer addresses of the same coordinator. `token`: the text,
// file:PATH, or empty. kUnauthorised, kInvalid, kConflict: no retry helps;
// kTimeout, kUnavailable: one may; the latter also once `stop` can be read.
Result<Membership> join(const DataFolder& folder, const std::string& token, const std::string& name,
                        const Clock& clock, Duration timeout, int stop = -1);

// The host's name made fit for a node's, with the start of the node's id, so
// that two daemons on one host differ.
std::string default_name(const protocol::Identity& identity);

}  // namespace skerry::daemon
