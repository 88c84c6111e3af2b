// SPDX-License-Identifier: Apache-2.0
// The store on disk: RocksDB, one column family per family of chunks (log off,
// nothing compacted or compressed, one flush), metadata in the default one
// (synced log).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "storage/store.h"

namespace skerry::storage {

struct RocksDbOptions {
  std::size_t write_buffer_bytes = 16
                                   << 20;  // of each family being filled; up to three are in memory
  // Changes are refused with kExhausted while less is free on the file system:
  // a log record that a full disk cuts short would keep the store from opening
  // again. Metadata may use all but a quarter of it, so that what is committed
  // can still be recorded when no chunk fits any more.
  std::uint64_t reserve_bytes = 64 << 20;
};

// Opens or creates the store in folder `path`, and holds its lock until
// destroyed.
// kConflict: another process has it open. kInvalid: written by another version
// of the format, or not a store. kUnauthorised: no permission. kExhausted: disk
// full. kCorrupt: damaged; the message says what to do.
Result<std::unique_ptr<Store>> open_rocksdb_store(const std::string& path,
                                                  const RocksDbOptions& options = {});

// What is durable now in the store in folder `path`, to be read only: writes
// nothing there, needs no lock, and goes on showing the same while another
// process changes it. Every change of it fails. `scratch`: a folder for
// RocksDB's own notes. An owner that drops a family in the same moment can make
// it fail: try again.
Result<std::unique_ptr<Store>> view_rocksdb_store(const std::string& path,
                                                  const std::string& scratch);

}  // namespace skerry::storage
