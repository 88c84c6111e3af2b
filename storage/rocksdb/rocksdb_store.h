// SPDX-License-Identifier: Apache-2.0
// The store on disk, over RocksDB. Each family of chunks is a column family
// without log, compaction or compression, flushed once. Metadata is in the
// default column family, with a synced log.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "storage/store.h"

namespace skerry::storage {

struct RocksDbOptions {
  // of each family being filled; up to three buffers are in memory
  std::size_t write_buffer_bytes = 16 << 20;
  // Below this free space on the file system, changes fail with kExhausted. A
  // log record that a full disk cuts short would keep the store from opening
  // again. Metadata may use three quarters of the reserve, so that commits can
  // still be recorded when no chunk fits.
  std::uint64_t reserve_bytes = 64 << 20;
};

// Opens or creates the store in folder `path`, and holds its lock until
// destroyed.
// ON FAILURE:
// - kConflict: another process has it open.
// - kInvalid: another version of the format, or not a store.
// - kUnauthorised: no permission.
// - kExhausted: the disk is full.
// - kCorrupt: damaged; the message says what to do.
Result<std::unique_ptr<Store>> open_rocksdb_store(const std::string& path,
                                                  const RocksDbOptions& options = {});

// Opens a read-only snapshot of the durable state in folder `path`. It writes
// nothing there and needs no lock. It stays the same while another process
// changes the store. Every change through it fails. `scratch` is a folder for
// RocksDB's own notes.
// ON FAILURE: retry; an owner that drops a family at that moment can cause a
// failure.
Result<std::unique_ptr<Store>> view_rocksdb_store(const std::string& path,
                                                  const std::string& scratch);

}  // namespace skerry::storage
