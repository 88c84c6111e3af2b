// SPDX-License-Identifier: Apache-2.0
#include "storage/rocksdb/options.h"

#include <rocksdb/cache.h>
#include <rocksdb/env.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/table.h>

#include <array>
#include <cstdarg>
#include <cstdio>
#include <memory>

#include "base/log.h"

namespace skerry::storage {
namespace {

constexpr int kNoLimit = 1 << 30;

// RocksDB's warnings go to our log. A file of its own on the same disk aborts
// the process: after a line met a full disk, the next fails an assertion.
class InfoLog final : public rocksdb::Logger {
 public:
  InfoLog() : rocksdb::Logger(rocksdb::InfoLogLevel::WARN_LEVEL) {}
  using rocksdb::Logger::Logv;
  void Logv(const char* format, va_list arguments) override {
    std::array<char, 512> line{};
    std::vsnprintf(line.data(), line.size(), format, arguments);
    log_debug(line.data());
  }
};

}  // namespace

rocksdb::DBOptions database_options() {
  rocksdb::DBOptions options;
  options.create_if_missing = true;
  // The default recovery mode silently cuts the log at the first damaged
  // record, and so loses acknowledged writes.
  options.wal_recovery_mode = rocksdb::WALRecoveryMode::kAbsoluteConsistency;
  options.track_and_verify_wals_in_manifest = true;
  options.wal_compression =
      rocksdb::kNoCompression;           // with it on, this version drops synced writes
  options.max_total_wal_size = 8 << 20;  // an old log must not be kept by a family that writes none
  options.max_bgerror_resume_count = 0;  // a failed flush stays failed: the process ends
  options.max_background_jobs = 2;
  options.bytes_per_sync = 4 << 20;
  options.max_open_files = 512;
  options.info_log = std::make_shared<InfoLog>();
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;
  return options;
}

rocksdb::ColumnFamilyOptions metadata_options() {
  rocksdb::ColumnFamilyOptions options;
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = rocksdb::NewLRUCache(4 << 20);
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  options.write_buffer_size = 4 << 20;
  options.compression = rocksdb::kNoCompression;
  return options;
}

rocksdb::ColumnFamilyOptions chunk_options(const RocksDbOptions& chosen) {
  rocksdb::ColumnFamilyOptions options;
  rocksdb::BlockBasedTableOptions table;
  table.no_block_cache = true;
  // A lookup must not read a 4 MiB block of each file to learn that the chunk
  // is in another one.
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(16));
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  options.write_buffer_size = chosen.write_buffer_bytes;
  options.max_write_buffer_number = 2;
  options.compression = rocksdb::kNoCompression;
  options.disable_auto_compactions = true;
  options.level0_slowdown_writes_trigger = kNoLimit;
  options.level0_stop_writes_trigger = kNoLimit;
  options.soft_pending_compaction_bytes_limit = 0;
  options.hard_pending_compaction_bytes_limit = 0;
  return options;
}

}  // namespace skerry::storage
