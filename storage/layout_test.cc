// SPDX-License-Identifier: Apache-2.0
#include "storage/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "base/temp_folder.h"
#include "storage/chunk_file.h"
#include "storage/testing/testing.h"

namespace skerry::storage {
namespace {

std::string contents(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

class LayoutTest : public testing::Test {
 protected:
  ChunkSource source() {
    return [this](std::span<const Hash> hashes) -> Result<std::vector<std::string>> {
      std::vector<std::string> chunks;
      for (const Hash& hash : hashes) {
        const auto found = chunks_.find(hash);
        if (found == chunks_.end()) return fail(ErrorCode::kNotFound, "not in the test's map");
        chunks.push_back(found->second);
      }
      return chunks;
    };
  }
  void keep(const NamedManifest& named, const Safetensors& tensors) {
    value_of(for_each_chunk(named.manifest, tensors,
                            [this](const Hash& hash, std::string_view bytes) -> Result<void> {
                              EXPECT_EQ(blake2b(bytes), hash);
                              EXPECT_TRUE(chunks_.emplace(hash, bytes).second) << "given twice";
                              return {};
                            }));
  }

  TempFolder folder_;
  std::map<Hash, std::string> chunks_;
};

TEST_F(LayoutTest, a_checkpoint_comes_back_byte_for_byte) {
  const Safetensors tensors = snapshot(1);
  const NamedManifest named = value_of(build_checkpoint_manifest(tensors, checkpoint_facts()));
  keep(named, tensors);
  EXPECT_EQ(named.manifest.part(kPartEma)->tensors.size(), 2U);
  EXPECT_EQ(named.manifest.part(kPartEma)->tensors[0].chunks.size(), 3U);
  EXPECT_EQ(named.manifest.part(kPartState)->tensors.size(), 7U);
  EXPECT_EQ(named.manifest.bytes(), tensors.file().size() - tensors.header().data_start);
  const Layout layout = value_of(safetensors_layout(named.manifest));
  value_of(assemble_file(layout, source(), folder_ / "again"));
  EXPECT_EQ(contents(folder_ / "again"), tensors.file());
}

TEST_F(LayoutTest, one_part_is_a_file_of_its_own) {
  const Safetensors tensors = snapshot(2);
  const NamedManifest named = value_of(build_checkpoint_manifest(tensors, checkpoint_facts()));
  keep(named, tensors);
  const Layout layout = value_of(safetensors_layout(named.manifest, {std::string(kPartEma)}));
  value_of(assemble_file(layout, source(), folder_ / "ema"));
  const Safetensors ema = value_of(Safetensors::open(folder_ / "ema"));
  ASSERT_EQ(ema.header().tensors.size(), 2U);
  EXPECT_EQ(ema.tensor("ema/block.weight")->data, tensors.tensor("ema/block.weight")->data);
  EXPECT_EQ(ema.tensor("ema/block.bias")->data, tensors.tensor("ema/block.bias")->data);
}

TEST_F(LayoutTest, chunks_never_span_tensors) {
  const Safetensors tensors = snapshot(3);
  const NamedManifest named = value_of(build_checkpoint_manifest(tensors, checkpoint_facts()));
  for (const ManifestPart& part : named.manifest.parts) {
    for (const ManifestTensor& tensor : part.tensors) {
      std::uint64_t sum = 0;
      for (const Chunk& chunk : tensor.chunks) sum += chunk.bytes;
      EXPECT_EQ(sum, tensors.tensor(tensor.name)->data.size()) << tensor.name;
    }
  }
}

TEST_F(LayoutTest, a_chunk_of_another_length_leaves_no_file) {
  const Safetensors tensors = snapshot(4);
  const NamedManifest named = value_of(build_checkpoint_manifest(tensors, checkpoint_facts()));
  keep(named, tensors);
  chunks_.begin()->second.pop_back();
  const auto outcome =
      assemble_file(value_of(safetensors_layout(named.manifest)), source(), folder_ / "again");
  EXPECT_EQ(outcome.error().code, ErrorCode::kCorrupt);
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

class ChunkFileTest : public testing::Test {
 protected:
  std::string piece(const Placement& placement) const {
    return bytes_.substr(placement.offset, placement.chunk.bytes);
  }

  TempFolder folder_;
  // The first and the third chunk are equal.
  const std::string first_ = random_bytes(kMaxChunkBytes, 1);
  const std::string bytes_ =
      first_ + random_bytes(kMaxChunkBytes, 2) + first_ + random_bytes(1000, 3);
  const std::string source_ = folder_ / "source";
  const std::string target_ = folder_ / "target";
  const NamedManifest named_ = [this] {
    write_file(source_, bytes_);
    return value_of(build_file_manifest(source_, "source"));
  }();
  const Layout layout_ = file_layout(named_.manifest);
};

TEST_F(ChunkFileTest, is_received_in_any_order) {
  ChunkWriter writer = value_of(ChunkWriter::open(target_, layout_));
  EXPECT_TRUE(writer.present().empty());
  for (const int i : {3, 1, 0}) {
    const Placement& placement = layout_.placements[static_cast<std::size_t>(i)];
    value_of(writer.put(placement.chunk.hash, piece(placement)));
  }
  EXPECT_FALSE(std::filesystem::exists(target_));
  value_of(writer.commit());
  EXPECT_EQ(contents(target_), bytes_);
  EXPECT_FALSE(std::filesystem::exists(target_ + ".partial"));
}

TEST_F(ChunkFileTest, goes_on_where_an_earlier_life_stopped) {
  {
    ChunkWriter writer = value_of(ChunkWriter::open(target_, layout_));
    value_of(writer.put(layout_.placements[1].chunk.hash, piece(layout_.placements[1])));
    value_of(writer.put(layout_.placements[0].chunk.hash, piece(layout_.placements[0])));
  }
  const ChunkWriter writer = value_of(ChunkWriter::open(target_, layout_));
  EXPECT_THAT(writer.present(), testing::UnorderedElementsAre(layout_.placements[0].chunk.hash,
                                                              layout_.placements[1].chunk.hash));
}

TEST_F(ChunkFileTest, a_half_written_chunk_is_not_present) {
  {
    ChunkWriter writer = value_of(ChunkWriter::open(target_, layout_));
    value_of(
        writer.put(layout_.placements[1].chunk.hash, piece(layout_.placements[1]).substr(0, 1000)));
  }
  EXPECT_TRUE(value_of(ChunkWriter::open(target_, layout_)).present().empty());
}

TEST_F(ChunkFileTest, a_foreign_chunk_is_refused) {
  ChunkWriter writer = value_of(ChunkWriter::open(target_, layout_));
  EXPECT_EQ(writer.put(blake2b("x"), "x").error().code, ErrorCode::kInvalid);
}

TEST_F(ChunkFileTest, is_served_by_hash_and_never_damaged) {
  const ChunkReader reader = value_of(ChunkReader::open(source_, layout_));
  for (const Placement& placement : layout_.placements)
    EXPECT_EQ(reader.read(placement.chunk.hash), piece(placement));
  EXPECT_EQ(reader.read(blake2b("x")).error().code, ErrorCode::kNotFound);
  std::string damaged = bytes_;
  damaged[kMaxChunkBytes + 7] ^= 1;
  write_file(source_, damaged);
  EXPECT_EQ(reader.read(layout_.placements[1].chunk.hash).error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(reader.read(layout_.placements[0].chunk.hash), first_);
  std::filesystem::resize_file(source_, 10);
  EXPECT_EQ(reader.read(layout_.placements[0].chunk.hash).error().code, ErrorCode::kCorrupt);
}

TEST_F(ChunkFileTest, an_empty_file_has_no_chunks) {
  write_file(source_, "");
  const NamedManifest empty = value_of(build_file_manifest(source_, "empty"));
  ChunkWriter writer = value_of(ChunkWriter::open(target_, file_layout(empty.manifest)));
  value_of(writer.commit());
  EXPECT_EQ(contents(target_), "");
}

}  // namespace
}  // namespace skerry::storage
