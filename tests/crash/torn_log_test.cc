// SPDX-License-Identifier: Apache-2.0
// A power loss while the last record of the log is written, at every byte of
// it. The store opens and has all acknowledged data. The record is there whole
// or not at all (S6, S7).
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/temp_folder.h"
#include "storage/rocksdb/log_tail.h"
#include "storage/rocksdb/rocksdb_store.h"
#include "storage/testing/testing.h"

namespace skerry::storage {
namespace {

constexpr std::size_t kSector = 512;

// What a disk holds: a synced record of three blocks, then one that was being
// written.
class TornLog : public testing::Test {
 protected:
  void write(std::size_t last_bytes) {
    std::filesystem::remove_all(folder_ / "whole");
    std::filesystem::remove_all(folder_ / "store");
    {
      const auto store = value_of(open_rocksdb_store(folder_ / "store"));
      value_of(store->write({{"kept", random_bytes(70'000, 3)}}));
      acknowledged_ = std::filesystem::file_size(log_file());
      value_of(store->write({{"last", random_bytes(last_bytes, 4)}}));
    }
    last_bytes_ = last_bytes;
    std::filesystem::copy(folder_ / "store/db", folder_ / "whole");
    std::ifstream file(log_file(), std::ios::binary);
    log_.assign(std::istreambuf_iterator<char>(file), {});
    ASSERT_GT(log_.size(), acknowledged_ + last_bytes);
  }

  std::filesystem::path log_file() const {
    std::filesystem::path newest;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "store/db")) {
      if (entry.path().extension() == ".log" && entry.path() > newest) newest = entry.path();
    }
    return newest;
  }

  std::string zeroed(std::size_t from, std::size_t to) const {
    std::string log = log_;
    std::fill(log.begin() + static_cast<std::ptrdiff_t>(from),
              log.begin() + static_cast<std::ptrdiff_t>(to), '\0');
    return log;
  }

  // The log is cut where the last record begins, unless it is whole.
  void expect_cut(const std::string& log, const std::string& how) const {
    if (log == log_) return;
    const auto cut = torn_tail(log);
    ASSERT_TRUE(cut.has_value()) << how << " of " << log_.size();
    EXPECT_EQ(*cut, acknowledged_) << how;
  }

  void expect_opens(const std::string& log, const std::string& how) const {
    std::filesystem::remove_all(folder_ / "store/db");
    std::filesystem::copy(folder_ / "whole", folder_ / "store/db");
    std::ofstream(log_file(), std::ios::binary) << log;
    const auto store = open_rocksdb_store(folder_ / "store");
    ASSERT_TRUE(store.has_value()) << how << " of " << log_.size() << ": " << store.error().message;
    EXPECT_EQ(value_of((*store)->get("kept")), random_bytes(70'000, 3)) << how;
    const auto last = value_of((*store)->get("last"));
    EXPECT_TRUE(!last || *last == random_bytes(last_bytes_, 4)) << how;
    EXPECT_TRUE((*store)->write({{"last", "again"}}).has_value()) << how;
  }

  TempFolder folder_;
  std::string log_;
  std::size_t acknowledged_ = 0;  // so many bytes of it
  std::size_t last_bytes_ = 0;
};

TEST_F(TornLog, a_cut_or_zeroed_tail_at_every_byte_is_dropped) {
  write(44);
  for (std::size_t at = acknowledged_; at < log_.size(); ++at) {
    expect_opens(log_.substr(0, at), "cut at " + std::to_string(at));
    expect_opens(zeroed(at, log_.size()), "zeros from " + std::to_string(at));
  }
}

TEST_F(TornLog, zeros_in_a_record_of_several_blocks_are_dropped) {
  write(80'000);
  for (std::size_t at = acknowledged_; at < log_.size(); at += 1'613) {
    if (at > acknowledged_) expect_cut(log_.substr(0, at), "cut at " + std::to_string(at));
    expect_cut(zeroed(at, log_.size()), "zeros from " + std::to_string(at));
  }
  for (std::size_t sector = acknowledged_ / kSector * kSector; sector < log_.size();
       sector += 11 * kSector) {
    const std::size_t from = std::max(sector, acknowledged_);
    const std::size_t to = std::min(sector + kSector, log_.size());
    expect_cut(zeroed(from, to), "zeros in the sector at " + std::to_string(sector));
  }
  const std::size_t middle = (acknowledged_ + log_.size()) / 2 / kSector * kSector;
  expect_opens(zeroed(middle, middle + kSector), "zeros in a sector in the middle");
}

// What was synced is never cut: zeros in a record with another one after it,
// and a short damage in the last one.
TEST_F(TornLog, other_damage_is_not_taken_for_a_power_loss) {
  write(3'000);
  const std::size_t synced_sector = acknowledged_ / 2 / kSector * kSector;
  EXPECT_FALSE(torn_tail(zeroed(synced_sector, synced_sector + kSector)).has_value());
  for (std::size_t at = acknowledged_; at + 3 < log_.size(); at += 7) {
    const std::string log = zeroed(at, at + 2);
    if (log != log_) {
      EXPECT_FALSE(torn_tail(log).has_value()) << at;
    }
  }
}

}  // namespace
}  // namespace skerry::storage
