// SPDX-License-Identifier: Apache-2.0
// The store's folder before RocksDB opens it: checks that it exists, is ours,
// has this format, and is locked.
#pragma once

#include <string>
#include <utility>

#include "base/result.h"

namespace skerry::storage {

// Holds the lock on PATH/VERSION until destroyed, if it was claimed.
class StoreFolder {
 public:
  // Creates the folder and its version file if missing, and locks it.
  // ON FAILURE: as open_rocksdb_store().
  static Result<StoreFolder> claim(const std::string& path);
  // Reads without locking, even a folder in use.
  // ON FAILURE: kNotFound if there is none.
  static Result<StoreFolder> visit(const std::string& path);
  StoreFolder(StoreFolder&& other) noexcept
      : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}
  StoreFolder& operator=(StoreFolder&&) = delete;
  ~StoreFolder();
  std::string database() const { return path_ + "/db"; }
  const std::string& path() const { return path_; }

 private:
  StoreFolder(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  Result<void> check_version() const;
  std::string path_;
  int descriptor_ = -1;
};

}  // namespace skerry::storage
