// SPDX-License-Identifier: Apache-2.0
// Each version of Files against the conformance suite, and what only memory's
// and the faulty ones promise.
#include "storage/files.h"

#include <gmock/gmock.h>

#include "base/temp_folder.h"
#include "storage/testing/faulty_files.h"
#include "storage/testing/files_conformance.h"
#include "storage/testing/memory_files.h"
#include "storage/testing/testing.h"

namespace skerry::storage {
namespace {

class PosixHolder final : public FilesHolder {
 public:
  Files& files() override { return posix_files(); }
  std::string folder() override { return folder_.path().string(); }

 private:
  TempFolder folder_;
};

class MemoryHolder : public FilesHolder {
 public:
  MemoryHolder() { value_of(memory_.create_folder("/data")); }
  Files& files() override { return memory_; }
  std::string folder() override { return "/data"; }

 protected:
  MemoryFiles memory_;
};

class FaultyHolder final : public MemoryHolder {
 public:
  Files& files() override { return faulty_; }

 private:
  FaultyFiles faulty_{memory_};
};

template <class Holder>
FilesVersion version(const std::string& name) {
  return {name, [] { return std::make_unique<Holder>(); }};
}

INSTANTIATE_TEST_SUITE_P(Files, FilesConformance,
                         testing::Values(version<PosixHolder>("Posix"),
                                         version<MemoryHolder>("Memory"),
                                         version<FaultyHolder>("Faulty")),
                         [](const auto& each) { return each.param.name; });

class FaultyFilesTest : public testing::Test {
 protected:
  FaultyFilesTest() { value_of(memory_.create_folder("/data")); }

  void write(const std::string& name, const std::string& bytes, bool sync) {
    const auto file = value_of(files_.open("/data/" + name, Files::Open::kWrite));
    value_of(file->write_at(0, bytes));
    if (sync) value_of(file->sync());
  }
  // "none": it is not there.
  std::string read(const std::string& name) {
    const auto file = memory_.open("/data/" + name, Files::Open::kRead);
    if (!file) return "none";
    std::string bytes(100, '?');
    bytes.resize(value_of((*file)->read_at(0, bytes)));
    return bytes;
  }

  MemoryFiles memory_;
  FaultyFiles files_{memory_};
};

TEST_F(FaultyFilesTest, what_was_synced_survives_every_crash) {
  write("a", "kept", true);
  value_of(files_.rename("/data/a", "/data/b"));
  value_of(files_.sync_folder("/data"));
  EXPECT_EQ(files_.take_syncs(), 2U);
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    files_.crash(seed);
    EXPECT_EQ(read("b"), "kept");
    EXPECT_EQ(read("a"), "none");
  }
}

TEST_F(FaultyFilesTest, what_was_not_synced_is_kept_lost_or_torn) {
  std::set<std::string> found;
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    write("a", "old", true);
    value_of(files_.sync_folder("/data"));
    write("a", "new", false);
    files_.crash(seed);
    found.insert(read("a"));
  }
  EXPECT_THAT(found, testing::UnorderedElementsAre("old", "nld", "ned", "new"));
}

TEST_F(FaultyFilesTest, names_that_were_not_synced_change_back_from_the_latest_on) {
  std::set<std::string> found;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    write("a", "one", true);
    write("b", "two", true);
    value_of(files_.sync_folder("/data"));
    value_of(files_.rename("/data/a", "/data/b"));
    value_of(files_.remove("/data/b"));
    files_.crash(seed);
    found.insert(read("a") + " " + read("b"));
  }
  EXPECT_THAT(found, testing::UnorderedElementsAre("none none", "none one", "one two"));
}

TEST_F(FaultyFilesTest, the_chosen_operation_fails) {
  write("a", "bytes", true);
  files_.fail_at(FileOperation::kOpen, 1);
  EXPECT_EQ(files_.open("/data/a", Files::Open::kRead).error().code, ErrorCode::kIo);
  files_.fail_at(FileOperation::kRename, 1);
  EXPECT_EQ(files_.rename("/data/a", "/data/b").error().code, ErrorCode::kIo);
  EXPECT_EQ(read("a"), "bytes");
  const auto file = value_of(files_.open("/data/a", Files::Open::kWrite));
  files_.fail_at(FileOperation::kWrite, 1, ErrorCode::kExhausted);
  EXPECT_EQ(file->write_at(0, "BYTES").error().code, ErrorCode::kExhausted);
  EXPECT_EQ(read("a"), "bytes");
  files_.fail_at(FileOperation::kWrite, 1, ErrorCode::kIo, FailedEffect::kApplied);
  EXPECT_EQ(file->write_at(0, "BYTES").error().code, ErrorCode::kIo);
  EXPECT_EQ(read("a"), "BYtes");
}

TEST_F(FaultyFilesTest, a_flipped_read_leaves_the_file_as_it_is) {
  write("a", "bytes", true);
  const auto file = value_of(files_.open("/data/a", Files::Open::kRead));
  files_.flip_reads(1, 1);
  std::string bytes(5, '?');
  EXPECT_EQ(value_of(file->read_at(0, bytes)), 5U);
  EXPECT_NE(bytes, "bytes");
  files_.flip_reads(0, 1);
  EXPECT_EQ(value_of(file->read_at(0, bytes)), 5U);
  EXPECT_EQ(bytes, "bytes");
}

TEST(MemoryFiles, refuses_what_has_no_room) {
  MemoryFiles files(10);
  value_of(files.create_folder("/data"));
  const auto file = value_of(files.open("/data/a", Files::Open::kWrite));
  value_of(file->write_at(0, "12345678"));
  EXPECT_EQ(value_of(files.free_bytes("/data")), 2U);
  EXPECT_EQ(file->write_at(8, "abc").error().code, ErrorCode::kExhausted);
  EXPECT_EQ(value_of(file->size()), 8U);
  files.set_capacity(20);
  value_of(file->write_at(8, "abc"));
}

TEST(MemoryFiles, a_copy_is_apart_from_what_it_was_copied_from) {
  MemoryFiles files, copy;
  value_of(files.create_folder("/data"));
  value_of(value_of(files.open("/data/a", Files::Open::kWrite))->write_at(0, "abc"));
  copy.copy_from(files);
  files.damage("/data/a", 1);
  std::string bytes(3, '?');
  (void)value_of(value_of(copy.open("/data/a", Files::Open::kRead))->read_at(0, bytes));
  EXPECT_EQ(bytes, "abc");
  (void)value_of(value_of(files.open("/data/a", Files::Open::kRead))->read_at(0, bytes));
  EXPECT_NE(bytes, "abc");
}

}  // namespace
}  // namespace skerry::storage
