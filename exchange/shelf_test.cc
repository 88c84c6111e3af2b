// SPDX-License-Identifier: Apache-2.0
#include "exchange/shelf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "exchange/testing/testing.h"

namespace skerry::exchange {
namespace {

using testing::SizeIs;

std::string code(const auto& result) {
  return result.has_value() ? "ok" : to_string(result.error().code);
}

TEST(FolderShelf, takes_one_part_of_a_checkpoint_as_a_safetensors_file) {
  TempFolder folder;
  const storage::Safetensors tensors = small_snapshot(1);
  const auto named =
      value_of(storage::build_checkpoint_manifest(tensors, storage::checkpoint_facts()));
  std::size_t puts = 0;
  const auto fill = [&](FolderShelf& shelf, std::size_t most) {
    const auto present = value_of(shelf.open(named, {"ema"}));
    value_of(storage::for_each_chunk(
        named.manifest, tensors, [&](const Hash& hash, std::string_view bytes) -> Result<void> {
          const bool wanted =
              named.manifest.part("ema")->tensors.end() !=
              std::find_if(named.manifest.part("ema")->tensors.begin(),
                           named.manifest.part("ema")->tensors.end(),
                           [&](const auto& tensor) { return tensor.chunks.at(0).hash == hash; });
          const bool is_there = std::find(present.begin(), present.end(), hash) != present.end();
          if (!wanted || is_there || puts == most) return {};
          ++puts;
          return shelf.write(named.name, hash, bytes);
        }));
    return present.size();
  };
  {
    FolderShelf shelf(folder.path());
    EXPECT_EQ(fill(shelf, 4), 0U);
    EXPECT_EQ(code(shelf.seal(named.name)), "conflict");
    EXPECT_EQ(value_of(shelf.read(named.name, named.name)), named.encoded);
    EXPECT_EQ(code(shelf.find(named.name)), "not_found");
    std::size_t readable = 0;
    for (const storage::Chunk& chunk : storage::distinct_chunks(named.manifest, {"ema"})) {
      readable += shelf.read(named.name, chunk.hash).has_value();
    }
    EXPECT_EQ(readable, 4U);
  }
  FolderShelf shelf(folder.path());
  EXPECT_EQ(fill(shelf, 1000), 4U);  // goes on after a restart
  EXPECT_EQ(puts, 10U);
  EXPECT_EQ(code(shelf.seal(named.name)), "ok");
  EXPECT_EQ(code(shelf.seal(named.name)), "ok");
  const auto ema = value_of(storage::Safetensors::open(shelf.path_of(named.name)));
  ASSERT_THAT(ema.header().tensors, SizeIs(10));
  for (const auto& info : ema.header().tensors)
    EXPECT_EQ(ema.view(info).data, tensors.tensor(info.name)->data);
  EXPECT_THAT(value_of(shelf.open(named, {"ema"})), SizeIs(10));
}

// A person's fetch that was killed: its file ends anywhere, or holds what was
// never written as zeros.
TEST(FolderShelf, a_file_cut_off_at_any_byte_goes_on_to_the_same_bytes) {
  TempFolder folder;
  const storage::Safetensors tensors = small_snapshot(1, 6);
  const auto named =
      value_of(storage::build_checkpoint_manifest(tensors, storage::checkpoint_facts()));
  const std::string whole(tensors.file());
  for (std::size_t cut = 0; cut <= whole.size(); cut += 13) {
    for (const bool is_padded : {false, true}) {
      FolderShelf shelf(folder.path());
      std::string left = whole.substr(0, cut);
      if (is_padded) left.resize(whole.size(), '\0');
      std::ofstream(shelf.path_of(named.name) + ".partial", std::ios::binary) << left;
      const auto present = value_of(shelf.open(named, {}));
      value_of(storage::for_each_chunk(
          named.manifest, tensors, [&](const Hash& hash, std::string_view bytes) -> Result<void> {
            if (std::find(present.begin(), present.end(), hash) != present.end()) return {};
            return shelf.write(named.name, hash, bytes);
          }));
      value_of(shelf.seal(named.name));
      std::ifstream file(shelf.path_of(named.name), std::ios::binary);
      EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), whole) << cut;
      std::filesystem::remove(shelf.path_of(named.name));
    }
  }
}

TEST(FolderShelf, serves_a_file_where_it_lies) {
  TempFolder folder;
  std::ofstream(folder / "data") << "some bytes";
  const auto named = value_of(storage::build_file_manifest(folder / "data", "data"));
  FolderShelf shelf(folder.path());
  EXPECT_EQ(code(shelf.read(named.name, named.name)), "not_found");
  value_of(shelf.offer(named, folder / "data"));
  EXPECT_EQ(code(shelf.find(named.name)), "ok");
  EXPECT_EQ(value_of(shelf.read(named.name, named.name)), named.encoded);
  EXPECT_EQ(value_of(shelf.read(named.name, blake2b("some bytes"))), "some bytes");
  std::ofstream(folder / "data") << "other bytes";
  EXPECT_EQ(code(shelf.read(named.name, blake2b("some bytes"))), "corrupt");
  std::filesystem::remove(folder / "data");
  FolderShelf later(folder.path());
  value_of(later.offer(named, folder / "data"));
  EXPECT_EQ(code(later.read(named.name, blake2b("some bytes"))), "not_found");
}

// Upload of a file from a person's folder, and download of it into another's.
TEST(FolderShelf, a_file_goes_through_an_object_store) {
  World world;
  Party& uploader = world.add("uploader");
  Party& coordinator = world.add("coordinator");
  Party& reader = world.add("reader");
  TempFolder folder;
  const std::string bytes = storage::random_bytes(2 * storage::kMaxChunkBytes + 8, 4);
  std::ofstream(folder / "data", std::ios::binary) << bytes;
  const auto named = value_of(storage::build_file_manifest(folder / "data", "data"));
  auto offering = std::make_unique<FolderShelf>(folder.path());
  value_of(offering->offer(named, folder / "data"));
  uploader.shelf = std::move(offering);
  auto receiving = std::make_unique<FolderShelf>(folder.path());
  const FolderShelf& received = *receiving;
  reader.shelf = std::move(receiving);
  world.connect(uploader, coordinator);
  world.fetch(coordinator, named.name, {uploader.name});
  world.run_all();
  world.connect(coordinator, reader);
  world.fetch(reader, named.name, {coordinator.name});
  world.run_all();
  ASSERT_THAT(reader.completed, SizeIs(1));
  std::ostringstream read;
  read << std::ifstream(received.path_of(named.name), std::ios::binary).rdbuf();
  EXPECT_TRUE(read.str() == bytes);
}

}  // namespace
}  // namespace skerry::exchange
