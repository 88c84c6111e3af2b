// SPDX-License-Identifier: Apache-2.0
// Files that fail as disks do, over other files. They fail chosen operations,
// return wrong bytes, and at a crash lose or tear unsynced writes.
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

  // Makes the nth call of `operation` from here on fail (1: the next one). A
  // write that fails with kApplied is torn: part of it is there.
  void fail_at(FileOperation operation, unsigned nth, ErrorCode code = ErrorCode::kIo,
               FailedEffect effect = FailedEffect::kNone);
  // From here on, this share of reads returns a wrong byte; the file stays
  // intact.
  void flip_reads(double share, std::uint64_t seed);
  // RETURNS: the number of syncs since the last call; the caller decides what
  // they cost.
  unsigned take_syncs() { return std::exchange(syncs_, 0); }
  // Crashes and restarts the machine. Each write since its file's last sync is
  // there whole, in part or not at all. Of the renames since their folder's
  // last sync, any number of the latest revert.
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
    unsigned countdown = 0;  // 0: none set
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
  // a name that changed; an empty `from`: it was made; an empty `to`: it was
  // removed
  struct Renaming {
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
