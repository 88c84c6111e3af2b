// SPDX-License-Identifier: Apache-2.0
// The memory and faulty versions, and the rules of Store that only faults can
// show.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "storage/testing/faulty_store.h"
#include "storage/testing/memory_store.h"
#include "storage/testing/store_conformance.h"

namespace skerry::storage {
namespace {

class MemoryHolder final : public StoreHolder {
 public:
  Store& store() override { return store_; }

 private:
  MemoryStore store_;
};

class FaultyHolder final : public StoreHolder {
 public:
  Store& store() override { return store_; }

 private:
  MemoryStore below_;
  FaultyStore store_{below_};
};

INSTANTIATE_TEST_SUITE_P(
    InProcess, StoreConformance,
    testing::Values(StoreVersion{"memory", [] { return std::make_unique<MemoryHolder>(); }},
                    StoreVersion{"faulty_without_faults",
                                 [] { return std::make_unique<FaultyHolder>(); }}),
    [](const auto& version) { return version.param.name; });

const FamilyName kFamily("family");

class FaultyStoreTest : public testing::Test {
 protected:
  FaultyStoreTest() { EXPECT_TRUE(store_.create_family(kFamily).has_value()); }
  Result<void> put(const std::string& bytes) {
    return store_.put_chunk(kFamily, blake2b(bytes), bytes);
  }

  MemoryStore below_;
  FaultyStore store_{below_};
};

TEST_F(FaultyStoreTest, a_failed_write_ends_all_changes_but_no_reads) {
  ASSERT_TRUE(store_.write({{"kept", "1"}}).has_value());
  store_.fail_at(StoreOperation::kWrite, 2);
  ASSERT_TRUE(store_.write({{"also", "1"}}).has_value());
  EXPECT_EQ(store_.write({{"lost", "1"}}).error().code, ErrorCode::kIo);
  EXPECT_TRUE(store_.failed());
  const auto refused = store_.write({{"later", "1"}});
  EXPECT_EQ(refused.error().code, ErrorCode::kIo);
  EXPECT_THAT(refused.error().message, testing::HasSubstr("injected failure of write"));
  EXPECT_FALSE(put("chunk").has_value());
  EXPECT_FALSE(store_.flush(kFamily).has_value());
  EXPECT_FALSE(store_.create_family(FamilyName("other")).has_value());
  EXPECT_FALSE(store_.drop_family(kFamily).has_value());
  EXPECT_EQ(store_.get("kept")->value(), "1");
  EXPECT_FALSE(store_.get("lost")->has_value());
}

TEST_F(FaultyStoreTest, a_failed_flush_is_not_retried) {
  ASSERT_TRUE(put("chunk").has_value());
  store_.fail_at(StoreOperation::kFlush, 1, ErrorCode::kExhausted);
  EXPECT_EQ(store_.flush(kFamily).error().code, ErrorCode::kExhausted);
  EXPECT_TRUE(store_.failed());
  EXPECT_EQ(store_.flush(kFamily).error().code, ErrorCode::kExhausted);
}

TEST_F(FaultyStoreTest, a_failed_write_may_have_taken_effect) {
  store_.fail_at(StoreOperation::kWrite, 1, ErrorCode::kIo, FailedEffect::kApplied);
  EXPECT_FALSE(store_.write({{"a", "1"}}).has_value());
  store_.crash(1);
  EXPECT_EQ(store_.get("a")->value(), "1");
}

TEST_F(FaultyStoreTest, a_crash_keeps_what_was_flushed_and_may_lose_the_rest) {
  std::size_t kept = 0;
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(put("flushed " + std::to_string(i)).has_value());
  ASSERT_TRUE(store_.flush(kFamily).has_value());
  for (int i = 0; i < 64; ++i) ASSERT_TRUE(put("open " + std::to_string(i)).has_value());
  store_.crash(3);
  for (int i = 0; i < 8; ++i) {
    EXPECT_TRUE(store_.get_chunk(kFamily, blake2b("flushed " + std::to_string(i))).has_value());
  }
  for (int i = 0; i < 64; ++i)
    kept += store_.get_chunk(kFamily, blake2b("open " + std::to_string(i))).has_value();
  EXPECT_GT(kept, 0U);
  EXPECT_LT(kept, 64U);
}

TEST_F(FaultyStoreTest, after_a_crash_changes_are_taken_again) {
  store_.fail_at(StoreOperation::kWrite, 1);
  ASSERT_FALSE(store_.write({{"a", "1"}}).has_value());
  store_.crash(1);
  EXPECT_FALSE(store_.failed());
  EXPECT_TRUE(store_.write({{"a", "1"}}).has_value());
}

TEST_F(FaultyStoreTest, flipped_bits_are_caught_by_the_hash) {
  ASSERT_TRUE(put("chunk").has_value());
  store_.fail_at(StoreOperation::kGetChunk, 1);
  EXPECT_EQ(store_.get_chunk(kFamily, blake2b("chunk")).error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(*store_.get_chunk(kFamily, blake2b("chunk")), "chunk");
}

TEST(MemoryStoreTest, a_full_store_refuses_and_goes_on_when_there_is_room) {
  MemoryStore store(100);
  ASSERT_TRUE(store.create_family(kFamily).has_value());
  const std::string bytes(80, 'x');
  ASSERT_TRUE(store.put_chunk(kFamily, blake2b(bytes), bytes).has_value());
  EXPECT_EQ(store.write({{"key", std::string(30, 'v')}}).error().code, ErrorCode::kExhausted);
  EXPECT_FALSE(store.failed());
  ASSERT_TRUE(store.drop_family(kFamily).has_value());
  EXPECT_TRUE(store.write({{"key", std::string(30, 'v')}}).has_value());
}

TEST(MemoryStoreTest, a_damaged_chunk_is_not_served) {
  MemoryStore store;
  ASSERT_TRUE(store.create_family(kFamily).has_value());
  ASSERT_TRUE(store.put_chunk(kFamily, blake2b("chunk"), "chunk").has_value());
  store.damage_chunk(kFamily, blake2b("chunk"));
  EXPECT_EQ(store.get_chunk(kFamily, blake2b("chunk")).error().code, ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace skerry::storage
