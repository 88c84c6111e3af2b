// SPDX-License-Identifier: Apache-2.0
// The coordinator's data folder: DIR/identity, DIR/store (RocksDB), DIR/objects
// (files), DIR/admin.toml.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "coordinator/host/backup.h"
#include "coordinator/host/mirror.h"
#include "protocol/context.h"
#include "protocol/identity.h"
#include "storage/object_store.h"
#include "storage/store.h"

namespace skerry::coordinator {

struct DataFolder {
  std::filesystem::path path;
  std::unique_ptr<storage::Store> store;  // holds the lock; `objects` ends before it
  std::unique_ptr<storage::ObjectStore> objects;

  std::filesystem::path identity_file() const { return path / "identity"; }
  std::filesystem::path admin_file() const { return path / "admin.toml"; }
};

// Makes the folder where there is none. Errors as open_rocksdb_store().
Result<DataFolder> open_data_folder(const std::filesystem::path& path);

// The admin's context, complete in one file.
Result<void> write_admin_context(const DataFolder& folder, const protocol::Identity& coordinator,
                                 const protocol::Identity& admin,
                                 const protocol::Endpoints& endpoints,
                                 const pb::Certificate& certificate);
// The addresses may be others than at the last start. A context that was moved
// away stays away.
Result<void> refresh_admin_context(const DataFolder& folder, const protocol::Endpoints& endpoints);

// Copies everything to `to`, which must not exist or be empty. A backup, or a
// restore of one. The source is only read; a coordinator may be running on it.
// RETURNS: a line for people on each object that the state names and the copy
// lacks, because its chunks are damaged or gone. The copy keeps what can be
// read of it, as of one that is being received: a coordinator on the copy
// reports it damaged.
// ON FAILURE: nothing is left at `to`.
Result<std::vector<std::string>> copy_data_folder(const std::filesystem::path& from,
                                                  const std::filesystem::path& to,
                                                  std::optional<Restore> restore);

// Restores from a bucket, under the identity in that file. `to` must not exist,
// be empty, or hold what an interrupted restore left: it goes on there. An
// admin.toml of a new admin is written.
// RETURNS: as copy_data_folder().
// ON FAILURE: also as restore_from().
Result<std::vector<std::string>> restore_from_bucket(const storage::Bucket& bucket,
                                                     const std::filesystem::path& identity,
                                                     const std::filesystem::path& to,
                                                     const Restore& restore,
                                                     const MirrorProgress& progress);
// RETURNS: a line for people on each object that a copy lacks.
std::vector<std::string> lines_on(const CopiedData& copied);

// Begins a fresh store under the identity in `path`.
// RETURNS: path/damaged-N, to which it moved what was there.
// ON FAILURE: kNotFound: there is no identity. kConflict: a coordinator runs on
// the folder.
Result<std::filesystem::path> begin_fresh_store(const std::filesystem::path& path,
                                                std::int64_t unix_ms);

}  // namespace skerry::coordinator
