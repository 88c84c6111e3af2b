// SPDX-License-Identifier: Apache-2.0
#include "exchange/chunk_store.h"

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

TEST(FolderChunkStore, takes_one_part_of_a_checkpoint_as_a_safetensors_file) {
  TempFolder folder;
  const storage::Safetensors tensors = small_snapshot(1);
  const auto named =
      value_of(storage::build_checkpoint_manifest(tensors, storage::checkpoint_facts()));
  std::size_t puts = 0;
  const auto fill = [&](FolderChunkStore& chunk_store, std::size_t most) {
    const auto present = value_of(chunk_store.open(named, {"ema"}));
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
          return chunk_store.write(named.name, hash, bytes);
        }));
    return present.size();
  };
  {
    FolderChunkStore chunk_store(folder.path());
    EXPECT_EQ(fill(chunk_store, 4), 0U);
    EXPECT_EQ(code(chunk_store.seal(named.name)), "conflict");
    EXPECT_EQ(value_of(chunk_store.read(named.name, named.name)), named.encoded);
    EXPECT_EQ(code(chunk_store.find(named.name)), "not_found");
    std::size_t readable = 0;
    for (const storage::Chunk& chunk : storage::distinct_chunks(named.manifest, {"ema"})) {
      readable += chunk_store.read(named.name, chunk.hash).has_value();
    }
    EXPECT_EQ(readable, 4U);
  }
  FolderChunkStore chunk_store(folder.path());
  EXPECT_EQ(fill(chunk_store, 1000), 4U);  // goes on after a restart
  EXPECT_EQ(puts, 10U);
  EXPECT_EQ(code(chunk_store.seal(named.name)), "ok");
  EXPECT_EQ(code(chunk_store.seal(named.name)), "ok");
  const auto ema = value_of(storage::Safetensors::open(chunk_store.path_of(named.name)));
  ASSERT_THAT(ema.header().tensors, SizeIs(10));
  for (const auto& info : ema.header().tensors)
    EXPECT_EQ(ema.view(info).data, tensors.tensor(info.name)->data);
  EXPECT_THAT(value_of(chunk_store.open(named, {"ema"})), SizeIs(10));
}

// A person's fetch that was killed: its file ends anywhere, or holds what was
// never written as zeros.
TEST(FolderChunkStore, a_file_cut_off_at_any_byte_goes_on_to_the_same_bytes) {
  TempFolder folder;
  const storage::Safetensors tensors = small_snapshot(1, 6);
  const auto named =
      value_of(storage::build_checkpoint_manifest(tensors, storage::checkpoint_facts()));
  const std::string whole(tensors.file());
  for (std::size_t cut = 0; cut <= whole.size(); cut += 13) {
    for (const bool is_padded : {false, true}) {
      FolderChunkStore chunk_store(folder.path());
      std::string left = whole.substr(0, cut);
      if (is_padded) left.resize(whole.size(), '\0');
      std::ofstream(chunk_store.path_of(named.name) + ".partial", std::ios::binary) << left;
      const auto present = value_of(chunk_store.open(named, {}));
      value_of(storage::for_each_chunk(
          named.manifest, tensors, [&](const Hash& hash, std::string_view bytes) -> Result<void> {
            if (std::find(present.begin(), present.end(), hash) != present.end()) return {};
            return chunk_store.write(named.name, hash, bytes);
          }));
      value_of(chunk_store.seal(named.name));
      std::ifstream file(chunk_store.path_of(named.name), std::ios::binary);
      EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), whole) << cut;
      std::filesystem::remove(chunk_store.path_of(named.name));
    }
  }
}

TEST(FolderChunkStore, serves_a_file_where_it_lies) {
  TempFolder folder;
  std::ofstream(folder / "data") << "some bytes";
  const auto named = value_of(storage::build_file_manifest(folder / "data", "data"));
  FolderChunkStore chunk_store(folder.path());
  EXPECT_EQ(code(chunk_store.read(named.name, named.name)), "not_found");
  value_of(chunk_store.offer(named, folder / "data"));
  EXPECT_EQ(code(chunk_store.find(named.name)), "ok");
  EXPECT_EQ(value_of(chunk_store.read(named.name, named.name)), named.encoded);
  EXPECT_EQ(value_of(chunk_store.read(named.name, blake2b("some bytes"))), "some bytes");
  std::ofstream(folder / "data") << "other bytes";
  EXPECT_EQ(code(chunk_store.read(named.name, blake2b("some bytes"))), "corrupt");
  std::filesystem::remove(folder / "data");
  FolderChunkStore later(folder.path());
  value_of(later.offer(named, folder / "data"));
  EXPECT_EQ(code(later.read(named.name, blake2b("some bytes"))), "not_found");
}

// Upload of a file from a person's folder, and download of it into another's.
TEST(FolderChunkStore, a_file_goes_through_an_object_store) {
  World world;
  Party& uploader = world.add("uploader");
  Party& coordinator = world.add("coordinator");
  Party& reader = world.add("reader");
  TempFolder folder;
  const std::string bytes = storage::random_bytes(2 * storage::kMaxChunkBytes + 8, 4);
  std::ofstream(folder / "data", std::ios::binary) << bytes;
  const auto named = value_of(storage::build_file_manifest(folder / "data", "data"));
  auto offering = std::make_unique<FolderChunkStore>(folder.path());
  value_of(offering->offer(named, folder / "data"));
  uploader.chunk_store = std::move(offering);
  auto receiving = std::make_unique<FolderChunkStore>(folder.path());
  const FolderChunkStore& received = *receiving;
  reader.chunk_store = std::move(receiving);
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
