// SPDX-License-Identifier: Apache-2.0
#include "coordinator/host/mirror.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/host/mirror_thread.h"
#include "coordinator/testing/filled_folder.h"
#include "storage/bucket/testing/memory_bucket.h"

namespace skerry::coordinator {
namespace {

using storage::MemoryBucket;
using storage::value_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::NamedManifest;
using ::testing::SizeIs;

class MirrorTest : public ::testing::Test, protected testing::FilledFolder {
 protected:
  protocol::Identity identity() const {
    return value_of(protocol::Identity::load(from_ / "identity"));
  }
  Result<Mirrored> update(Mirror& mirror) const {
    return mirror_folder(mirror, from_, folder_.path() / "scratch", identity());
  }
  Result<Mirrored> update() {
    Mirror mirror(bucket_, identity().ed25519_key());
    return update(mirror);
  }
  Result<std::vector<std::string>> restore(const MemoryBucket& bucket,
                                           const std::filesystem::path& to,
                                           bool partial = false) const {
    return restore_from_bucket(bucket, from_ / "identity", to,
                               Restore{1'700'000'000'000, Core::Tokens::kKeep, partial}, {});
  }
  Result<std::vector<std::string>> restore(bool partial = false) const {
    return restore(bucket_, restored_, partial);
  }
  void flip_bytes_of_shard() {
    for (auto& [key, value] : bucket_.values) {
      const bool is_of_shard = key.starts_with("objects/" + shard_.name.hex());
      if (is_of_shard && !key.ends_with("manifest")) value[0] ^= 1;
    }
  }
  // Another checkpoint takes the place of the first.
  NamedManifest go_on(std::uint64_t seed) {
    const DataFolder folder = value_of(open_data_folder(from_));
    const NamedManifest next = commit(*folder.objects, seed);
    write_state(*folder.store);
    return next;
  }
  std::size_t objects_in_bucket() const {
    std::set<std::string> names;
    for (const auto& [key, value] : bucket_.values) {
      if (key.starts_with("objects/")) names.insert(key.substr(8, 64));
    }
    return names.size();
  }

  MemoryBucket bucket_;
};

TEST_F(MirrorTest, LeadsBackToTheSameObjects) {
  EXPECT_THAT(value_of(update()).copied.lacking, IsEmpty());
  EXPECT_THAT(value_of(restore()), IsEmpty());
  const DataFolder folder = value_of(open_data_folder(restored_));
  EXPECT_THAT(folder.objects->list(), SizeIs(4));
  EXPECT_THAT(folder.objects->partials(), IsEmpty());
  for (const storage::ObjectInfo& info : folder.objects->list())
    EXPECT_TRUE(folder.objects->check(info.name));
  EXPECT_EQ(value_of(protocol::Identity::load(folder.identity_file())).ed25519_key(),
            identity().ed25519_key());
  const auto again = restore();
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::kConflict);
}

TEST_F(MirrorTest, SendsNothingTwice) {
  Mirror mirror(bucket_, identity().ed25519_key());
  const std::uint64_t all = value_of(update(mirror)).sent_bytes;
  EXPECT_GT(all, storage::kMaxChunkBytes);
  int changes = 0;
  bucket_.before_change = [&](const std::string&) -> Result<void> {
    ++changes;
    return {};
  };
  EXPECT_EQ(value_of(update(mirror)).sent_bytes, 0U);
  EXPECT_EQ(value_of(update()).sent_bytes, 0U) << "nor by another process";
  EXPECT_EQ(changes, 0);
  go_on(2);
  EXPECT_LT(value_of(update()).sent_bytes, all - storage::kMaxChunkBytes) << "the shard is there";
}

TEST_F(MirrorTest, HoldsNoMoreThanTheNewestStateNames) {
  value_of(update());
  for (std::uint64_t seed = 2; seed < 6; ++seed) go_on(seed);
  const Mirrored mirrored = value_of(update());
  std::set<Hash> named;
  for (const NamedObject& each : mirrored.copied.named) named.insert(each.manifest);
  EXPECT_GT(mirrored.removed, 0U);
  EXPECT_EQ(objects_in_bucket(), named.size());
  EXPECT_THAT(value_of(bucket_.list("state/")), SizeIs(1));
}

TEST_F(MirrorTest, WhatANamedStateNeedsIsThereWhereverItIsKilled) {
  value_of(update());
  const auto before = bucket_.values;
  for (std::uint64_t seed = 2; seed < 6; ++seed) go_on(seed);
  bool ended = false;
  int kills = 0;
  for (; !ended; ++kills) {
    ASSERT_LT(kills, 100);
    bucket_.values = before;
    int left = kills;
    bucket_.before_change = [&](const std::string&) -> Result<void> {
      if (left-- > 0) return {};
      return fail(ErrorCode::kUnavailable, "killed");
    };
    ended = update().has_value();
    MemoryBucket left_behind;
    left_behind.values = bucket_.values;
    const auto restored = restore(left_behind, folder_.path() / std::to_string(kills));
    ASSERT_TRUE(restored) << kills << ": " << restored.error().message;
    EXPECT_THAT(*restored, IsEmpty()) << kills;
  }
  EXPECT_GT(kills, 8);
  bucket_.before_change = nullptr;
  EXPECT_EQ(value_of(update()).removed, 0U) << "the last one was done";
}

TEST_F(MirrorTest, AFailureIsMadeUpFor) {
  Mirror mirror(bucket_, identity().ed25519_key());
  int left = 3;
  bucket_.before_change = [&](const std::string&) -> Result<void> {
    if (left-- > 0) return {};
    return fail(ErrorCode::kExhausted, "full");
  };
  EXPECT_EQ(update(mirror).error().code, ErrorCode::kExhausted);
  EXPECT_EQ(restore().error().code, ErrorCode::kNotFound) << "no state before its objects";
  bucket_.before_change = nullptr;
  value_of(update(mirror));
  EXPECT_THAT(value_of(restore()), IsEmpty());
}

TEST_F(MirrorTest, NamesADamagedObjectAndKeepsTheRest) {
  std::fstream file(file_of(shard_), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(100).put('\x7f').put('\x01');
  file.close();
  EXPECT_THAT(lines_on(value_of(update()).copied), ElementsAre(line_on_shard()));
  EXPECT_THAT(restore().error().message, HasSubstr("--partial"));
  EXPECT_THAT(value_of(restore(/*partial=*/true)), ElementsAre(line_on_shard()));
}

TEST_F(MirrorTest, OtherBytesInTheBucketAreNotTaken) {
  value_of(update());
  flip_bytes_of_shard();
  EXPECT_EQ(restore().error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(value_of(restore(bucket_, folder_.path() / "partial", /*partial=*/true)),
              ElementsAre(line_on_shard()));
  flip_bytes_of_shard();
  EXPECT_THAT(value_of(restore()), IsEmpty()) << "once the store is well, it goes on";
  for (auto& [key, value] : bucket_.values) {
    if (key.starts_with("state/")) value[0] ^= 1;
  }
  EXPECT_EQ(restore(bucket_, folder_.path() / "other").error().code, ErrorCode::kCorrupt);
}

// A backup by hand to the same prefix removes what the thread believes there.
TEST_F(MirrorTest, SeesWhatAnotherHasDoneToTheBucket) {
  Mirror mirror(bucket_, identity().ed25519_key());
  value_of(update(mirror));
  bucket_.values.clear();
  value_of(update(mirror));
  EXPECT_THAT(value_of(restore()), IsEmpty()) << "an emptied bucket is filled";
  go_on(2);
  value_of(update());
  std::erase_if(bucket_.values, [&](const auto& each) {
    return each.first.starts_with("objects/" + shard_.name.hex());
  });
  go_on(3);
  value_of(update(mirror));
  EXPECT_THAT(value_of(restore(bucket_, folder_.path() / "again")), IsEmpty());
}

TEST_F(MirrorTest, AnInterruptedRestoreGoesOnUnderTheSameIdentity) {
  value_of(update());
  MemoryBucket broken;
  broken.values = bucket_.values;
  std::erase_if(broken.values, [&](const auto& each) {
    return each.first.starts_with("objects/" + checkpoint_.name.hex());
  });
  EXPECT_FALSE(restore(broken, restored_));
  EXPECT_EQ(value_of(protocol::Identity::load(restored_ / "identity")).ed25519_key(),
            identity().ed25519_key());
  EXPECT_THAT(value_of(restore()), IsEmpty());
}

TEST_F(MirrorTest, AnothersBucketIsLeftAlone) {
  value_of(update());
  const auto before = bucket_.values;
  Mirror other(bucket_, std::string(32, 'k'));
  const auto refused = update(other);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kConflict);
  EXPECT_THAT(refused.error().message, HasSubstr("belongs to"));
  EXPECT_EQ(bucket_.values, before);
}

}  // namespace
}  // namespace skerry::coordinator
