// SPDX-License-Identifier: Apache-2.0
// The options that RocksDB runs with. Private to this folder.
#pragma once

#include <rocksdb/options.h>

#include "storage/rocksdb/rocksdb_store.h"

namespace skerry::storage {

rocksdb::DBOptions database_options();
rocksdb::ColumnFamilyOptions metadata_options();
rocksdb::ColumnFamilyOptions chunk_options(const RocksDbOptions& options);

}  // namespace skerry::storage
