// SPDX-License-Identifier: Apache-2.0
// Files in memory, for tests and simulations. Everything is durable at once:
// faulty_files.h adds crashes.
//
// THREADS: any, also of one File.
#pragma once

#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "storage/files.h"

namespace skerry::storage {

class MemoryFiles final : public Files {
 public:
  MemoryFiles() = default;
  // Holds at most this many bytes; refuses growth beyond it with kExhausted.
  explicit MemoryFiles(std::uint64_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}
  void set_capacity(std::uint64_t bytes);
  // Changes one byte of a file silently, as a failing disk does.
  // REQUIRES: it is there.
  void damage(const std::string& path, std::uint64_t offset);
  // Replaces the content with a copy of `other`'s. Files that are open here
  // keep their content.
  void copy_from(const MemoryFiles& other);

  Result<std::unique_ptr<File>> open(const std::string& path, Open how) override;
  bool exists(const std::string& path) const override;
  Result<void> rename(const std::string& from, const std::string& to) override;
  Result<void> remove(const std::string& path) override;
  Result<void> create_folder(const std::string& folder) override;
  Result<std::vector<std::string>> list(const std::string& folder) const override;
  Result<void> sync_folder(const std::string& folder) override;
  Result<std::uint64_t> free_bytes(const std::string& folder) const override;

 private:
  class Handle;
  using Content = std::shared_ptr<std::string>;
  Result<void> grow(std::string& content, std::uint64_t bytes);
  std::uint64_t used() const;

  mutable std::mutex mutex_;
  std::uint64_t capacity_bytes_ = std::numeric_limits<std::uint64_t>::max();
  std::map<std::string, Content> files_;
  std::set<std::string> folders_;
};

}  // namespace skerry::storage
