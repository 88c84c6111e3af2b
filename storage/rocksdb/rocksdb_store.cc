// SPDX-License-Identifier: Apache-2.0
#include "storage/rocksdb/rocksdb_store.h"

#include <rocksdb/db.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/log.h"
#include "base/text.h"
#include "storage/files.h"
#include "storage/rocksdb/folder.h"
#include "storage/rocksdb/log_tail.h"
#include "storage/rocksdb/options.h"

namespace skerry::storage {
namespace {

ErrorCode code_of(const rocksdb::Status& status) {
  if (status.IsCorruption()) return ErrorCode::kCorrupt;
  if (status.IsNoSpace() || status.subcode() == rocksdb::Status::SubCode::kSpaceLimit)
    return ErrorCode::kExhausted;
  return ErrorCode::kIo;
}

Error error_of(std::string_view action, const rocksdb::Status& status) {
  return fail(code_of(status), text("cannot ", action, ": ", status.ToString()));
}

Result<void> result_of(std::string_view action, const rocksdb::Status& status) {
  if (!status.ok()) return error_of(action, status);
  return {};
}

rocksdb::Slice key_of(const Hash& hash) {
  return {reinterpret_cast<const char*>(hash.bytes.data()), Hash::kBytes};
}

rocksdb::Slice slice_of(std::string_view bytes) { return {bytes.data(), bytes.size()}; }

class RocksDbStore final : public Store {
 public:
  // A reader may hold a family while another thread drops it; the last holder
  // releases the handle.
  using Family = std::shared_ptr<rocksdb::ColumnFamilyHandle>;

  RocksDbStore(StoreFolder folder, const RocksDbOptions& options, rocksdb::DB* database,
               const std::vector<rocksdb::ColumnFamilyHandle*>& handles)
      : folder_(std::move(folder)), options_(options), database_(database) {
    for (rocksdb::ColumnFamilyHandle* handle : handles) {
      if (handle->GetName() == rocksdb::kDefaultColumnFamilyName) {
        metadata_ = own(handle);
      } else {
        families_.emplace(handle->GetName(), own(handle));
      }
    }
  }

  ~RocksDbStore() override {
    families_.clear();
    metadata_.reset();
    const rocksdb::Status status = database_->Close();
    if (!status.ok()) log_warning("storage did not close cleanly", {{"status", status.ToString()}});
  }

  Result<void> has_room(std::size_t bytes, bool metadata) const override {
    ASSIGN_OR_RETURN(const std::uint64_t free, free_bytes(folder_.path()));
    const std::uint64_t kept = metadata ? options_.reserve_bytes / 4 : options_.reserve_bytes;
    if (free >= kept && free - kept >= bytes) return {};
    return fail(ErrorCode::kExhausted,
                text("the disk of ", folder_.path(), " is full: ", human_bytes(free), " free, ",
                     human_bytes(kept), " are kept in reserve, ", human_bytes(bytes),
                     " more are needed; make room"));
  }

 private:
  Family own(rocksdb::ColumnFamilyHandle* handle) {
    return {handle, [database = database_.get()](rocksdb::ColumnFamilyHandle* done) {
              (void)database->DestroyColumnFamilyHandle(done);
            }};
  }

  Result<Family> find(const FamilyName& family) const {
    const std::lock_guard lock(mutex_);
    const auto found = families_.find(family);
    if (found == families_.end()) return fail(ErrorCode::kNotFound, text("no family ", family));
    return found->second;
  }

  Result<void> do_write(std::span<const Write> batch) override {
    rocksdb::WriteBatch writes;
    for (const Write& each : batch) {
      const rocksdb::Status status =
          each.value ? writes.Put(each.key, *each.value) : writes.Delete(each.key);
      TRY(result_of("prepare a write", status));
    }
    rocksdb::WriteOptions synced;
    synced.sync = true;
    return result_of("write to storage", database_->Write(synced, &writes));
  }

  Result<std::optional<std::string>> do_get(std::string_view key) const override {
    std::string value;
    const rocksdb::Status status = database_->Get({}, metadata_.get(), slice_of(key), &value);
    if (status.IsNotFound()) return std::optional<std::string>();
    if (!status.ok()) return error_of("read from storage", status);
    return std::optional(std::move(value));
  }

  Result<std::vector<Entry>> do_scan(std::string_view prefix) const override {
    std::vector<Entry> entries;
    const std::unique_ptr<rocksdb::Iterator> at(database_->NewIterator({}, metadata_.get()));
    for (at->Seek(slice_of(prefix)); at->Valid() && at->key().starts_with(slice_of(prefix));
         at->Next()) {
      entries.push_back({at->key().ToString(), at->value().ToString()});
    }
    if (!at->status().ok()) return error_of("read from storage", at->status());
    return entries;
  }

  Result<void> do_create_family(const FamilyName& family) override {
    const std::lock_guard lock(mutex_);
    if (families_.contains(family))
      return fail(ErrorCode::kConflict, text("family ", family, " exists"));
    rocksdb::ColumnFamilyHandle* handle = nullptr;
    TRY(result_of("create a family",
                  database_->CreateColumnFamily(chunk_options(options_), family.str(), &handle)));
    families_.emplace(family, own(handle));
    return {};
  }

  Result<void> do_put_chunk(const FamilyName& family, const Hash& hash,
                            std::string_view bytes) override {
    ASSIGN_OR_RETURN(const Family handle, find(family));
    rocksdb::WriteOptions unlogged;
    unlogged.disableWAL = true;
    return result_of("write a chunk",
                     database_->Put(unlogged, handle.get(), key_of(hash), slice_of(bytes)));
  }

  Result<void> do_flush(const FamilyName& family) override {
    ASSIGN_OR_RETURN(const Family handle, find(family));
    return result_of("flush chunks", database_->Flush(rocksdb::FlushOptions(), handle.get()));
  }

  Result<std::string> do_get_chunk(const FamilyName& family, const Hash& hash) const override {
    ASSIGN_OR_RETURN(const Family handle, find(family));
    std::string bytes;
    const rocksdb::Status status = database_->Get({}, handle.get(), key_of(hash), &bytes);
    if (status.IsNotFound()) {
      return fail(ErrorCode::kNotFound, text("no chunk ", hash.short_hex(), " in ", family));
    }
    if (!status.ok())
      return error_of(text("read chunk ", hash.short_hex(), " of ", family), status);
    return bytes;
  }

  Result<std::vector<Hash>> do_chunks(const FamilyName& family) const override {
    ASSIGN_OR_RETURN(const Family handle, find(family));
    std::vector<Hash> intact;
    const std::unique_ptr<rocksdb::Iterator> at(database_->NewIterator({}, handle.get()));
    for (at->SeekToFirst(); at->Valid(); at->Next()) {
      const auto hash = Hash::from_raw({at->key().data(), at->key().size()});
      if (hash && blake2b({at->value().data(), at->value().size()}) == *hash)
        intact.push_back(*hash);
    }
    // The iterator stops at a damaged block. Chunks behind it are fetched and
    // put again, and the new copy wins.
    if (!at->status().ok()) {
      log_warning("damaged chunks on disk",
                  {{"family", family}, {"status", at->status().ToString()}});
    }
    return intact;
  }

  Result<void> do_drop_family(const FamilyName& family) override {
    const std::lock_guard lock(mutex_);
    const auto found = families_.find(family);
    if (found == families_.end()) return fail(ErrorCode::kNotFound, text("no family ", family));
    TRY(result_of("drop a family", database_->DropColumnFamily(found->second.get())));
    families_.erase(found);
    return {};
  }

  std::vector<FamilyName> do_families() const override {
    const std::lock_guard lock(mutex_);
    std::vector<FamilyName> names;
    for (const auto& [name, handle] : families_) names.push_back(name);
    return names;
  }

  StoreFolder folder_;
  RocksDbOptions options_;
  std::unique_ptr<rocksdb::DB> database_;
  Family metadata_;
  mutable std::mutex mutex_;
  std::map<FamilyName, Family> families_;
};

// RocksDB would start an empty database beside data whose pointer file is lost.
bool holds_data(const std::string& database) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(database, error)) {
    const auto extension = entry.path().extension();
    if (extension == ".sst" || extension == ".log") return true;
  }
  return false;
}

// RocksDB 7.8 ends the process by an assertion when it cannot write its log
// while it opens.
// https://github.com/facebook/rocksdb/pull/12448
Result<void> has_room_to_open(const StoreFolder& folder) {
  std::uint64_t wanted = 1 << 20;  // a manifest and the options
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder.database(), error)) {
    if (entry.path().extension() == ".log")
      wanted += entry.file_size(error);  // written anew as a table
  }
  ASSIGN_OR_RETURN(const std::uint64_t free, free_bytes(folder.path()));
  if (free >= wanted) return {};
  return fail(ErrorCode::kExhausted,
              text("the disk of ", folder.path(), " is full: ", human_bytes(free), " free, ",
                   human_bytes(wanted), " are needed to open it; make room"));
}

Result<std::vector<rocksdb::ColumnFamilyDescriptor>> known_families(const std::string& database,
                                                                    const RocksDbOptions& options) {
  std::vector<std::string> names;
  const rocksdb::Status status =
      rocksdb::DB::ListColumnFamilies(database_options(), database, &names);
  if (!status.ok() && !status.IsPathNotFound()) return error_of(text("open ", database), status);
  if (!status.ok() && holds_data(database)) {
    return fail(ErrorCode::kCorrupt,
                text(database, " has lost its CURRENT file; restore it from a backup"));
  }
  // A database that is not there yet has nothing to list; Open creates it.
  if (names.empty()) names.push_back(rocksdb::kDefaultColumnFamilyName);
  std::vector<rocksdb::ColumnFamilyDescriptor> families;
  for (const std::string& name : names) {
    const bool metadata = name == rocksdb::kDefaultColumnFamilyName;
    families.emplace_back(name, metadata ? metadata_options() : chunk_options(options));
  }
  return families;
}

}  // namespace

Result<std::unique_ptr<Store>> open_rocksdb_store(const std::string& path,
                                                  const RocksDbOptions& options) {
  ASSIGN_OR_RETURN(StoreFolder folder, StoreFolder::claim(path));
  TRY(has_room_to_open(folder));
  ASSIGN_OR_RETURN(const auto families, known_families(folder.database(), options));
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  rocksdb::DB* database = nullptr;
  const auto open = [&] {
    return rocksdb::DB::Open(database_options(), folder.database(), families, &handles, &database);
  };
  rocksdb::Status status = open();
  if (status.IsCorruption()) {
    ASSIGN_OR_RETURN(const bool was_torn, cut_torn_tail(folder.database()));
    if (was_torn) status = open();
  }
  if (status.IsCorruption()) {
    return fail(ErrorCode::kCorrupt,
                text(path, " is damaged and is not opened, so that nothing wrong is served (",
                     status.ToString(), "); restore it from a backup or use a new folder"));
  }
  if (!status.ok()) return error_of(text("open ", path), status);
  return std::unique_ptr<Store>(
      std::make_unique<RocksDbStore>(std::move(folder), options, database, handles));
}

Result<std::unique_ptr<Store>> view_rocksdb_store(const std::string& path,
                                                  const std::string& scratch) {
  ASSIGN_OR_RETURN(StoreFolder folder, StoreFolder::visit(path));
  ASSIGN_OR_RETURN(const auto families, known_families(folder.database(), {}));
  rocksdb::DBOptions options = database_options();
  options.create_if_missing = false;
  options.max_open_files = -1;  // what its owner drops from here on stays readable
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  rocksdb::DB* database = nullptr;
  const rocksdb::Status status = rocksdb::DB::OpenAsSecondary(options, folder.database(), scratch,
                                                              families, &handles, &database);
  if (!status.ok()) return error_of(text("read ", path), status);
  return std::unique_ptr<Store>(
      std::make_unique<RocksDbStore>(std::move(folder), RocksDbOptions{}, database, handles));
}

}  // namespace skerry::storage
