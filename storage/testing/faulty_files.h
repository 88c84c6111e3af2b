// SPDX-License-Identifier: Apache-2.0
// Files that fail as disks do: over other files they fail chosen operations,
// bring wrong bytes, and at a crash lose or tear what was not synced.
// Deterministic.
//
// THREADS: any.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/random.h"
#include "storage/files.h"
#include "storage/testing/faulty_store.h"

namespace skerry::storage {

enum class FileOperation { kOpen, kRead, kWrite, kSync, kRename, kRemove };

class FaultyFiles final : public Files {
 public:
  // LIFETIME: `below` outlives this. It holds what is durable and survives
  // crashes.
  explicit FaultyFiles(Files& below) : below_(below) {}

  // The nth call of `operation` from here on fails (1: the next one). A write
  // that fails and is applied is torn: a part of it is there.
  void fail_at(FileOperation operation, unsigned nth, ErrorCode code = ErrorCode::kIo,
               FailedEffect effect = FailedEffect::kNone);
  // Of the reads from here on this share brings a wrong byte; the file stays as
  // it is.
  void flip_reads(double share, std::uint64_t seed);
  // RETURNS: how often something was made durable, since the last call. What
  // that costs is up to the caller.
  unsigned take_syncs() { return std::exchange(syncs_, 0); }
  // The machine ends and starts again. Of each write since the last sync of its
  // file all, a part or nothing is there. Of the names that changed since the
  // last sync of their folder, any number of the latest change back.
  // REQUIRES: no file is open.
  void crash(std::uint64_t seed);

  Result<std::unique_ptr<File>> open(const std::string& path, Open how) override;
  bool exists(const std::string& path) const override { return below_.exists(path); }
  Result<void> rename(const std::string& from, const std::string& to) override;
  Result<void> remove(const std::string& path) override;
  Result<void> create_folder(const std::string& folder) override {
    return below_.create_folder(folder);
  }
  Result<std::vector<std::string>> list(const std::string& folder) const override {
    return below_.list(folder);
  }
  Result<void> sync_folder(const std::string& folder) override;
  Result<std::uint64_t> free_bytes(const std::string& folder) const override {
    return below_.free_bytes(folder);
  }

 private:
  class Handle;
  using Name =
      std::shared_ptr<std::string>;  // of an open file, as it is now; empty: it has none any more
  struct Fault {
    unsigned countdown = 0;  // 0: none planned
    ErrorCode code = ErrorCode::kIo;
    FailedEffect effect = FailedEffect::kNone;
  };
  struct Change {  // to a file's content
    std::uint64_t offset = 0;
    std::string bytes;
    std::optional<std::uint64_t> size;  // a resize
  };
  struct Unsynced {
    std::string synced;
    std::vector<Change> changes;
  };
  struct
      // a name that changed; an empty `from`: it was made; an empty `to`: it
      // was removed
      Renaming {
    std::string folder;
    std::string from;
    std::string to;
    std::optional<std::string> lost;  // what `to` named before, or `from` where it was removed
  };

  std::optional<Fault> due(FileOperation operation) const;
  Result<void> fail_if_due(FileOperation operation) const;
  Result<void> change(const std::string& path, File& file, Change change);
  Name name_of(const std::string& path);
  void forget(const std::string& path);
  Result<std::string> content(const std::string& path) const;
  Result<void> put_back(const std::string& path, const std::string& bytes);
  void undo(const Renaming& renaming);

  Files& below_;
  mutable std::recursive_mutex mutex_;
  mutable std::array<Fault, 6> faults_;
  double flips_ = 0;
  mutable std::optional<Stream> random_;
  unsigned syncs_ = 0;
  std::map<std::string, Name> names_;
  std::map<std::string, Unsynced> unsynced_;
  std::vector<Renaming> renamings_;
};

}  // namespace skerry::storage
