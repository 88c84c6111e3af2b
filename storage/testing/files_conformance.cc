// SPDX-License-Identifier: Apache-2.0
#include "storage/testing/files_conformance.h"

#include <gmock/gmock.h>

#include <thread>

#include "storage/testing/testing.h"

namespace skerry::storage {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FilesConformance);

namespace {

using testing::IsEmpty;
using testing::UnorderedElementsAre;

std::string read(const File& file, std::uint64_t offset, std::size_t bytes) {
  std::string out(bytes, '?');
  out.resize(value_of(file.read_at(offset, out)));
  return out;
}

std::string read(Files& files, const std::string& path) {
  return read(*value_of(files.open(path, Files::Open::kRead)), 0, 1000);
}

void write(Files& files, const std::string& path, const std::string& bytes) {
  const auto file = value_of(files.open(path, Files::Open::kCreate));
  value_of(file->write_at(0, bytes));
  value_of(file->sync());
}

ErrorCode code(const auto& result) { return result.error().code; }

TEST_P(FilesConformance, what_is_written_is_read_at_any_place) {
  const auto file = value_of(files().open(path("a"), Files::Open::kWrite));
  value_of(file->write_at(0, "hello, world"));
  value_of(file->write_at(7, "there"));
  EXPECT_EQ(read(*file, 0, 5), "hello");
  EXPECT_EQ(read(*file, 7, 100), "there");
  EXPECT_EQ(read(*file, 12, 5), "");
  EXPECT_EQ(read(*file, 500, 5), "");
  EXPECT_EQ(value_of(file->size()), 12U);
  value_of(file->sync());
}

TEST_P(FilesConformance, a_gap_reads_as_zeros) {
  const auto file = value_of(files().open(path("a"), Files::Open::kWrite));
  value_of(file->write_at(3, "x"));
  EXPECT_EQ(read(*file, 0, 10), std::string("\0\0\0x", 4));
  value_of(file->resize(6));
  EXPECT_EQ(read(*file, 0, 10), std::string("\0\0\0x\0\0", 6));
  value_of(file->resize(2));
  EXPECT_EQ(value_of(file->size()), 2U);
}

TEST_P(FilesConformance, what_is_not_there_cannot_be_read_renamed_or_removed) {
  EXPECT_EQ(code(files().open(path("a"), Files::Open::kRead)), ErrorCode::kNotFound);
  EXPECT_EQ(code(files().rename(path("a"), path("b"))), ErrorCode::kNotFound);
  EXPECT_EQ(code(files().remove(path("a"))), ErrorCode::kNotFound);
  EXPECT_EQ(code(files().list(path("nowhere"))), ErrorCode::kNotFound);
  EXPECT_EQ(code(files().open(path("nowhere/a"), Files::Open::kWrite)), ErrorCode::kNotFound);
  EXPECT_EQ(code(files().sync_folder(path("nowhere"))), ErrorCode::kNotFound);
}

TEST_P(FilesConformance, a_file_that_is_created_is_empty_and_one_that_is_written_goes_on) {
  write(files(), path("a"), "before");
  value_of(value_of(files().open(path("a"), Files::Open::kWrite))->write_at(6, " and after"));
  EXPECT_EQ(read(files(), path("a")), "before and after");
  (void)value_of(files().open(path("a"), Files::Open::kCreate));
  EXPECT_EQ(read(files(), path("a")), "");
}

TEST_P(FilesConformance, a_rename_replaces_what_had_the_name) {
  write(files(), path("a"), "one");
  write(files(), path("b"), "two");
  value_of(files().rename(path("a"), path("b")));
  value_of(files().sync_folder(folder()));
  EXPECT_FALSE(files().exists(path("a")));
  EXPECT_TRUE(files().exists(path("b")));
  EXPECT_EQ(read(files(), path("b")), "one");
}

TEST_P(FilesConformance, an_open_file_outlives_its_name) {
  write(files(), path("a"), "one");
  const auto file = value_of(files().open(path("a"), Files::Open::kRead));
  value_of(files().rename(path("a"), path("b")));
  EXPECT_EQ(read(*file, 0, 10), "one");
  value_of(files().remove(path("b")));
  EXPECT_EQ(read(*file, 0, 10), "one");
}

TEST_P(FilesConformance, a_folder_lists_its_files) {
  EXPECT_THAT(value_of(files().list(folder())), IsEmpty());
  value_of(files().create_folder(path("deep/inside")));
  value_of(files().create_folder(path("deep/inside")));
  write(files(), path("deep/inside/a"), "1");
  write(files(), path("deep/inside/b"), "2");
  EXPECT_THAT(value_of(files().list(path("deep/inside"))), UnorderedElementsAre("a", "b"));
  EXPECT_GT(value_of(files().free_bytes(folder())), 0U);
}

TEST_P(FilesConformance, many_threads_write_one_file) {
  const auto file = value_of(files().open(path("a"), Files::Open::kWrite));
  {
    std::vector<std::jthread> writers;
    for (std::uint64_t i = 0; i < 8; ++i)
      writers.emplace_back([&file, i] {
        value_of(file->write_at(i * 3, std::string(3, static_cast<char>('a' + i))));
      });
  }
  EXPECT_EQ(read(*file, 0, 100), "aaabbbcccdddeeefffggghhh");
}

TEST_P(FilesConformance, a_partial_file_appears_whole_or_not_at_all) {
  {
    PartialFile left = value_of(PartialFile::create(path("left"), files()));
    value_of(left.append("half"));
  }
  EXPECT_THAT(value_of(files().list(folder())), IsEmpty());
  PartialFile kept = value_of(PartialFile::create(path("kept"), files()));
  value_of(kept.append("one, "));
  value_of(kept.append("two"));
  EXPECT_FALSE(files().exists(path("kept")));
  value_of(kept.commit());
  EXPECT_EQ(read(files(), path("kept")), "one, two");
  EXPECT_FALSE(files().exists(path("kept.partial")));
}

}  // namespace
}  // namespace skerry::storage
