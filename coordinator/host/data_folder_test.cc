// SPDX-License-Identifier: Apache-2.0
// Copies of a data folder whose disk has damaged some of it, on the real store.
#include "coordinator/host/data_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/temp_folder.h"
#include "coordinator/host/authority.h"
#include "coordinator/host/backup.h"
#include "coordinator/host/host.h"
#include "coordinator/testing/filled_folder.h"
#include "storage/rocksdb/rocksdb_store.h"
#include "storage/testing/testing.h"

namespace skerry::coordinator {
namespace {

using storage::NamedManifest;
using storage::value_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Gt;
using testing::Harness;
using ::testing::IsEmpty;
using ::testing::Lt;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

void flip_byte(const std::filesystem::path& path, std::uint64_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  const int byte = file.get();
  file.seekp(static_cast<std::streamoff>(at));
  file.put(static_cast<char>(byte ^ 1));
  ASSERT_TRUE(file.good());
}

class DataFolderCopy : public ::testing::Test, protected testing::FilledFolder {
 protected:
  std::vector<std::string> back_up() const {
    return value_of(copy_data_folder(from_, backup_, std::nullopt));
  }
  std::vector<std::string> restore() const {
    return value_of(
        copy_data_folder(backup_, restored_, Restore{1'700'000'000'000, Core::Tokens::kKeep}));
  }

  // A coordinator starts on the copy, which has `left` of the object's chunks,
  // and all others whole.
  void expect_in_part(const std::filesystem::path& copy, const NamedManifest& object,
                      const ::testing::Matcher<std::size_t>& left) const {
    const DataFolder folder = value_of(open_data_folder(copy));
    value_of(protocol::Identity::load(folder.identity_file()));
    EXPECT_THAT(folder.objects->list(), SizeIs(3));
    for (const storage::ObjectInfo& info : folder.objects->list())
      EXPECT_TRUE(folder.objects->check(info.name)) << info.name.hex();
    EXPECT_THAT(folder.objects->partials(), SizeIs(1));
    EXPECT_FALSE(folder.objects->has(object.name));
    EXPECT_THAT(value_of(folder.objects->begin(object)), SizeIs(left));
    value_of(check_objects(harness_.core(), *folder.objects));
  }

  const std::filesystem::path backup_ = folder_.path() / "backup";
};

TEST_F(DataFolderCopy, LacksNothingOfAFolderThatIsWhole) {
  EXPECT_THAT(back_up(), IsEmpty());
  EXPECT_THAT(restore(), IsEmpty());
  const DataFolder folder = value_of(open_data_folder(restored_));
  EXPECT_THAT(folder.objects->list(), SizeIs(4));
  EXPECT_THAT(folder.objects->partials(), IsEmpty());
}

TEST_F(DataFolderCopy, DoesNotCopyAFolderIntoItself) {
  for (const std::filesystem::path& to : {from_ / "inside", from_ / "objects" / ".." / "inside"}) {
    const auto copied = copy_data_folder(from_, to, std::nullopt);
    ASSERT_FALSE(copied);
    EXPECT_EQ(copied.error().code, ErrorCode::kInvalid);
    EXPECT_FALSE(std::filesystem::exists(from_ / "inside"));
  }
  EXPECT_THAT(back_up(), IsEmpty()) << "beside it, under a name that begins alike, is no matter";
}

TEST_F(DataFolderCopy, SaysWhatAFolderLacksToBeABackup) {
  const auto restored = copy_data_folder(from_, restored_, Restore{0, Core::Tokens::kKeep});
  ASSERT_FALSE(restored);
  EXPECT_THAT(restored.error().message, ::testing::HasSubstr("backup-complete"));
}

TEST_F(DataFolderCopy, KeepsWhatCanBeReadOfAFileThatTheDiskDamaged) {
  flip_byte(file_of(shard_), 100);
  EXPECT_THAT(back_up(), ElementsAre(line_on_shard()));
  expect_in_part(backup_, shard_, 1);
  EXPECT_THAT(restore(), ElementsAre(line_on_shard()));
  expect_in_part(restored_, shard_, 1);
}

TEST_F(DataFolderCopy, KeepsWhatCanBeReadOfAFileThatIsKnownToBeDamaged) {
  flip_byte(file_of(shard_), 100);
  EXPECT_FALSE(value_of(value_of(open_data_folder(from_)).objects->verify(shard_.name)));
  EXPECT_THAT(back_up(), ElementsAre(line_on_shard()));
  expect_in_part(backup_, shard_, 1);
}

TEST_F(DataFolderCopy, NamesAFileThatIsGone) {
  std::filesystem::remove(file_of(shard_));
  EXPECT_THAT(back_up(), ElementsAre(line_on_shard()));
  expect_in_part(backup_, shard_, 0);
}

TEST_F(DataFolderCopy, NamesADamagedCheckpointKnownOrNot) {
  // Small chunks lie in one block with the next, and are damaged with it.
  const auto some = AllOf(Gt(0U), Lt(storage::distinct_chunks(checkpoint_.manifest).size()));
  flip_byte(table(), std::filesystem::file_size(table()) / 2);
  EXPECT_THAT(back_up(), ElementsAre(line_on_checkpoint()));
  expect_in_part(backup_, checkpoint_, some);
  std::filesystem::remove_all(backup_);

  EXPECT_FALSE(value_of(value_of(open_data_folder(from_)).objects->verify(checkpoint_.name)));
  EXPECT_THAT(back_up(), ElementsAre(line_on_checkpoint()));
  EXPECT_THAT(restore(), ElementsAre(line_on_checkpoint()));
  expect_in_part(restored_, checkpoint_, some);
}

// RocksDB opens no database whose table has a damaged index; its secondary
// instance does.
TEST_F(DataFolderCopy, SavesTheRestOfAFolderThatDoesNotOpen) {
  flip_byte(table(), std::filesystem::file_size(table()) - 300);
  EXPECT_EQ(open_data_folder(from_).error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(back_up(), ElementsAre(line_on_checkpoint()));
  EXPECT_THAT(restore(), ElementsAre(line_on_checkpoint()));
  expect_in_part(restored_, checkpoint_, 0);
}

TEST_F(DataFolderCopy, NamesEachOfSeveral) {
  flip_byte(file_of(shard_), 100);
  flip_byte(table(), std::filesystem::file_size(table()) / 2);
  EXPECT_THAT(back_up(), UnorderedElementsAre(line_on_shard(), line_on_checkpoint()));
}

// Nothing needs it: a coordinator drops it in the end.
TEST_F(DataFolderCopy, LeavesOutADamagedObjectThatTheStateDoesNotName) {
  NamedManifest unnamed;
  NamedManifest begun;
  {
    const DataFolder folder = value_of(open_data_folder(from_));
    unnamed = store_file(*folder.objects, "unnamed", 1000);
    begun = store_file(*folder.objects, "begun", 2000);
    value_of(folder.objects->drop(begun.name));
    value_of(folder.objects->begin(begun));
  }
  flip_byte(file_of(unnamed), 100);
  EXPECT_THAT(back_up(), IsEmpty());
  const DataFolder copy = value_of(open_data_folder(backup_));
  EXPECT_THAT(copy.objects->list(), SizeIs(4));
  EXPECT_THAT(copy.objects->partials(), IsEmpty());
}

// A coordinator that commits faster than everything can be copied is caught up
// with.
TEST_F(DataFolderCopy, AnotherAttemptCopiesOnlyWhatIsNew) {
  NamedManifest passing;
  {
    const DataFolder folder = value_of(open_data_folder(from_));
    passing = store_file(*folder.objects, "passing", 1000);
  }
  const DataFolder target = value_of(open_data_folder(backup_));
  const auto attempt = [&] {
    const auto store = value_of(storage::view_rocksdb_store((from_ / "store").string(),
                                                            (folder_.path() / "reading").string()));
    const auto objects = value_of(storage::ObjectStore::view(*store, (from_ / "objects").string(),
                                                             storage::Checkpoints::kInStore));
    return copy_data(
        {*store, *objects}, {*target.store, *target.objects},
        IdentityAuthority(value_of(protocol::Identity::load(DataFolder{from_}.identity_file()))),
        SystemClock().now(), std::nullopt, false);
  };
  const std::filesystem::path hidden = folder_.path() / "hidden";
  std::filesystem::rename(file_of(shard_), hidden);
  EXPECT_FALSE(attempt()) << "the coordinator moved an object";
  const std::size_t first = target.objects->list().size();
  EXPECT_GT(first, 0U);
  std::filesystem::rename(hidden, file_of(shard_));
  value_of(value_of(open_data_folder(from_)).objects->drop(passing.name));

  EXPECT_THAT(value_of(attempt()).lacking, IsEmpty());
  EXPECT_THAT(target.objects->list(), SizeIs(4));
  EXPECT_THAT(target.objects->partials(), IsEmpty());
  EXPECT_FALSE(target.objects->has(passing.name));
}

}  // namespace
}  // namespace skerry::coordinator
