// SPDX-License-Identifier: Apache-2.0
#include "storage/rocksdb/rocksdb_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>

#include "base/temp_folder.h"
#include "storage/rocksdb/log_tail.h"
#include "storage/testing/store_conformance.h"

namespace skerry::storage {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const FamilyName kFamily("ckpt-1");

std::unique_ptr<Store> open_or_die(const std::string& path, const RocksDbOptions& options = {}) {
  auto store = open_rocksdb_store(path, options);
  SKERRY_CHECK(store.has_value(), store.has_value() ? "" : store.error().message);
  return std::move(*store);
}

class RocksDbHolder final : public StoreHolder {
 public:
  Store& store() override { return *store_; }

 private:
  TempFolder folder_;
  std::unique_ptr<Store> store_ = open_or_die(folder_.path());
};

INSTANTIATE_TEST_SUITE_P(RocksDb, StoreConformance,
                         testing::Values(StoreVersion{
                             "rocksdb", [] { return std::make_unique<RocksDbHolder>(); }}),
                         [](const auto& version) { return version.param.name; });

// Incompressible, so that a flipped byte is a flipped byte of a value.
std::string bytes_of_size(std::size_t size, unsigned seed) {
  std::string bytes(size, '\0');
  for (char& each : bytes) each = static_cast<char>((seed = seed * 1664525U + 1013904223U) >> 24);
  return bytes;
}

class RocksDbStoreTest : public testing::Test {
 protected:
  void fill(Store& store, unsigned chunks) {
    ASSERT_TRUE(store.create_family(kFamily).has_value());
    for (unsigned i = 0; i < chunks; ++i) {
      const std::string bytes = bytes_of_size(1 << 20, i);
      ASSERT_TRUE(store.put_chunk(kFamily, blake2b(bytes), bytes).has_value());
    }
    ASSERT_TRUE(store.flush(kFamily).has_value());
    ASSERT_TRUE(store.write({{"manifest", "1"}}).has_value());
  }

  std::filesystem::path largest(const std::string& extension) const {
    std::filesystem::path found;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "db")) {
      if (entry.path().extension() != extension) continue;
      if (found.empty() || entry.file_size() > std::filesystem::file_size(found))
        found = entry.path();
    }
    return found;
  }

  static void flip(const std::filesystem::path& path, std::uint64_t offset) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    const char old = static_cast<char>(file.get());
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(static_cast<char>(old ^ 0x20));
    ASSERT_TRUE(file.good());
  }

  Error open_error() const {
    auto store = open_rocksdb_store(folder_.path());
    return store.has_value() ? fail(ErrorCode::kInvalid, "it opened") : store.error();
  }

  TempFolder folder_;
};

TEST_F(RocksDbStoreTest, everything_is_there_after_a_restart) {
  { fill(*open_or_die(folder_.path()), 5); }
  const auto store = open_or_die(folder_.path());
  EXPECT_EQ(store->get("manifest")->value(), "1");
  EXPECT_THAT(store->families(), ElementsAre(kFamily));
  for (unsigned i = 0; i < 5; ++i) {
    const std::string bytes = bytes_of_size(1 << 20, i);
    EXPECT_EQ(store->get_chunk(kFamily, blake2b(bytes)), bytes);
  }
}

TEST_F(RocksDbStoreTest, dropping_a_family_gives_the_space_back) {
  const auto store = open_or_die(folder_.path());
  fill(*store, 40);
  const auto size = [&] {
    std::uintmax_t total = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "db")) {
      if (entry.path().extension() == ".sst") total += entry.file_size();
    }
    return total;
  };
  EXPECT_GE(size(), 40U << 20);
  EXPECT_LE(size(), 41U << 20);  // written once: nothing twice, nothing compacted
  ASSERT_TRUE(store->drop_family(kFamily).has_value());
  EXPECT_LT(size(), 1U << 20);
}

TEST_F(RocksDbStoreTest, a_second_opener_is_told_that_it_is_in_use) {
  const auto store = open_or_die(folder_.path());
  const Error error = open_error();
  EXPECT_EQ(error.code, ErrorCode::kConflict);
  EXPECT_THAT(error.message, HasSubstr("in use by another process"));
}

TEST_F(RocksDbStoreTest, a_view_shows_what_is_durable_while_its_owner_goes_on) {
  const auto owner = open_or_die(folder_.path());
  fill(*owner, 3);
  const TempFolder scratch;
  const auto view = view_rocksdb_store(folder_.path(), scratch.path());
  ASSERT_TRUE(view.has_value()) << view.error().message;
  ASSERT_TRUE(owner->write({{"manifest", std::nullopt}, {"later", "1"}}).has_value());
  ASSERT_TRUE(owner->drop_family(kFamily).has_value());
  EXPECT_EQ((*view)->get("manifest").value(), "1");
  EXPECT_EQ((*view)->get("later").value(), std::nullopt);
  EXPECT_EQ((*view)->chunks(kFamily).value().size(), 3U);
  const std::string first = bytes_of_size(1 << 20, 0);
  EXPECT_EQ((*view)->get_chunk(kFamily, blake2b(first)).value(), first);
  EXPECT_FALSE((*view)->write({{"mine", "1"}}).has_value());
  EXPECT_EQ(owner->get("mine").value(), std::nullopt);
}

TEST_F(RocksDbStoreTest, another_version_is_refused_and_left_alone) {
  { fill(*open_or_die(folder_.path()), 1); }
  std::ofstream(folder_ / "VERSION") << "skerry store 2\n";
  const Error error = open_error();
  EXPECT_EQ(error.code, ErrorCode::kInvalid);
  EXPECT_THAT(error.message, HasSubstr("found \"skerry store 2\""));
  std::ofstream(folder_ / "VERSION") << "skerry store 1\n";
  EXPECT_EQ(open_or_die(folder_.path())->get("manifest")->value(), "1");
}

TEST_F(RocksDbStoreTest, a_database_without_a_version_is_not_ours) {
  { fill(*open_or_die(folder_.path()), 1); }
  std::filesystem::remove(folder_ / "VERSION");
  EXPECT_EQ(open_error().code, ErrorCode::kInvalid);
}

TEST_F(RocksDbStoreTest, a_folder_without_permission_is_named) {
  const std::string locked = folder_ / "locked";
  std::filesystem::create_directory(locked);
  std::filesystem::permissions(
      folder_.path(), std::filesystem::perms::owner_all | std::filesystem::perms::others_exec);
  std::filesystem::permissions(locked, std::filesystem::perms::none);
  // Root may write anywhere: be nobody for a moment.
  const bool is_root = ::geteuid() == 0;
  if (is_root) {
    ASSERT_EQ(::seteuid(65534), 0);
  }
  const auto store = open_rocksdb_store(locked + "/data");
  if (is_root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
  std::filesystem::permissions(locked, std::filesystem::perms::owner_all);
  ASSERT_FALSE(store.has_value());
  EXPECT_EQ(store.error().code, ErrorCode::kUnauthorised);
  EXPECT_THAT(store.error().message, HasSubstr(locked));
}

TEST_F(RocksDbStoreTest, a_path_that_is_a_file_is_an_error) {
  std::ofstream(folder_ / "file") << "x";
  EXPECT_FALSE(open_rocksdb_store(folder_ / "file").has_value());
}

TEST_F(RocksDbStoreTest, a_damaged_chunk_is_refused_and_can_be_put_again) {
  { fill(*open_or_die(folder_.path()), 3); }
  flip(largest(".sst"), 1'600'000);
  const auto store = open_or_die(folder_.path());
  unsigned damaged = 3;
  for (unsigned i = 0; i < 3; ++i) {
    const auto read = store->get_chunk(kFamily, blake2b(bytes_of_size(1 << 20, i)));
    if (read.has_value()) continue;
    EXPECT_EQ(read.error().code, ErrorCode::kCorrupt);
    EXPECT_EQ(damaged, 3U) << "one flipped bit damages one chunk";
    damaged = i;
  }
  ASSERT_LT(damaged, 3U);
  const std::string bytes = bytes_of_size(1 << 20, damaged);
  EXPECT_THAT(*store->chunks(kFamily), testing::Not(testing::Contains(blake2b(bytes))));
  ASSERT_TRUE(store->put_chunk(kFamily, blake2b(bytes), bytes).has_value());
  ASSERT_TRUE(store->flush(kFamily).has_value());
  EXPECT_EQ(store->get_chunk(kFamily, blake2b(bytes)), bytes);
}

TEST_F(RocksDbStoreTest, a_damaged_log_is_not_cut_silently) {
  {
    const auto store = open_or_die(folder_.path());
    for (int i = 0; i < 50; ++i)
      ASSERT_TRUE(store->write({{"key/" + std::to_string(i), std::string(100, 'v')}}).has_value());
  }
  const auto log = largest(".log");
  flip(log, std::filesystem::file_size(log) / 2);
  const Error error = open_error();
  EXPECT_EQ(error.code, ErrorCode::kCorrupt);
  EXPECT_THAT(error.message, HasSubstr("backup"));
}

// A write cut short by a crash, at every length that it could have: what came
// before it is there, and it is not.
TEST_F(RocksDbStoreTest, a_write_cut_short_is_dropped_and_all_before_it_kept) {
  for (const std::size_t value_bytes : {5UL, 100'000UL}) {
    const TempFolder folder;
    const std::string path = folder.path();
    std::uintmax_t acknowledged = 0;
    const auto log = [&] {
      std::filesystem::path newest;
      for (const auto& entry : std::filesystem::directory_iterator(path + "/db")) {
        if (entry.path().extension() == ".log" && entry.path() > newest) newest = entry.path();
      }
      return newest;
    };
    {
      const auto store = open_or_die(path);
      ASSERT_TRUE(store->write({{"kept", bytes_of_size(70'000, 3)}}).has_value());
      acknowledged = std::filesystem::file_size(log());
      ASSERT_TRUE(store->write({{"cut", bytes_of_size(value_bytes, 4)}}).has_value());
    }
    const std::filesystem::path whole = folder.path() / "whole";
    std::filesystem::copy(path + "/db", whole);
    const std::uintmax_t size = std::filesystem::file_size(log());
    for (std::uintmax_t at = acknowledged; at < size;
         at += std::max<std::uintmax_t>(1, (size - acknowledged) / 11)) {
      std::filesystem::remove_all(path + "/db");
      std::filesystem::copy(whole, path + "/db");
      std::filesystem::resize_file(log(), at);
      const auto store = open_rocksdb_store(path);
      ASSERT_TRUE(store.has_value()) << at << " of " << size << ": " << store.error().message;
      EXPECT_EQ((*store)->get("kept")->value(), bytes_of_size(70'000, 3));
      EXPECT_FALSE((*store)->get("cut")->has_value());
      EXPECT_TRUE((*store)->write({{"cut", "again"}}).has_value());
    }
  }
}

// Every byte of an acknowledged log, flipped in turn: never taken for a torn
// tail.
TEST_F(RocksDbStoreTest, damage_is_never_taken_for_a_write_cut_short) {
  {
    const auto store = open_or_die(folder_.path());
    for (int i = 0; i < 4; ++i) {
      ASSERT_TRUE(
          store->write({{"key/" + std::to_string(i), bytes_of_size(60, static_cast<unsigned>(i))}})
              .has_value());
    }
  }
  std::ifstream file(largest(".log"), std::ios::binary);
  const std::string log{std::istreambuf_iterator<char>(file), {}};
  ASSERT_GT(log.size(), 200U);
  EXPECT_FALSE(torn_tail(log).has_value());
  for (std::size_t at = 0; at < log.size(); ++at) {
    for (const char bit : {'\x01', '\x10', '\x80'}) {
      std::string damaged = log;
      damaged[at] = static_cast<char>(damaged[at] ^ bit);
      EXPECT_FALSE(torn_tail(damaged).has_value()) << at;
    }
  }
}

TEST_F(RocksDbStoreTest, a_lost_current_file_does_not_start_an_empty_store) {
  { fill(*open_or_die(folder_.path()), 1); }
  std::filesystem::remove(folder_ / "db/CURRENT");
  EXPECT_EQ(open_error().code, ErrorCode::kCorrupt);
}

TEST_F(RocksDbStoreTest, a_full_disk_refuses_chunks_first_and_recovers_by_itself) {
  struct Room {
    std::uint64_t reserve_bytes;
    bool chunk;
    bool metadata;
  };
  const std::uint64_t free = std::filesystem::space(folder_.path()).available;
  for (const Room& room :
       {Room{free * 2, false, true}, Room{free * 8, false, false}, Room{0, true, true}}) {
    const auto store = open_or_die(folder_.path(), {.reserve_bytes = room.reserve_bytes});
    if (!store->has_family(kFamily) && room.metadata) {
      ASSERT_TRUE(store->create_family(kFamily).has_value());
    }
    const auto put = store->put_chunk(kFamily, blake2b("chunk"), "chunk");
    const auto write = store->write({{"key", "value"}});
    EXPECT_EQ(put.has_value(), room.chunk);
    EXPECT_EQ(write.has_value(), room.metadata);
    if (!room.chunk) {
      EXPECT_EQ(put.error().code, ErrorCode::kExhausted);
    }
    if (!room.metadata) {
      EXPECT_EQ(write.error().code, ErrorCode::kExhausted);
      EXPECT_TRUE(store->write({{"key", std::nullopt}}).has_value()) << "removing makes room";
    }
    EXPECT_FALSE(store->failed());
  }
}

// Files may not grow past a limit for as long as this lives: write(2) fails
// with EFBIG.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limited{bytes, old_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limited);
  }
  ~FileSizeLimit() { ::setrlimit(RLIMIT_FSIZE, &old_); }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit old_{};
};

TEST_F(RocksDbStoreTest, after_a_failed_write_the_store_takes_no_changes_until_it_is_opened_again) {
  {
    const auto store = open_or_die(folder_.path());
    fill(*store, 2);
    const FileSizeLimit limit(1 << 20);
    const std::string bytes = bytes_of_size(2 << 20, 77);
    ASSERT_TRUE(store->put_chunk(kFamily, blake2b(bytes), bytes).has_value());
    EXPECT_FALSE(store->flush(kFamily).has_value());
    EXPECT_TRUE(store->failed());
    EXPECT_FALSE(store->write({{"manifest", "2"}}).has_value());
    EXPECT_EQ(store->get("manifest")->value(), "1");
  }
  const auto store = open_or_die(folder_.path());
  EXPECT_EQ(store->get("manifest")->value(), "1");
  EXPECT_EQ(store->chunks(kFamily)->size(), 2U);
  EXPECT_TRUE(store->write({{"manifest", "2"}}).has_value());
}

}  // namespace
}  // namespace skerry::storage
