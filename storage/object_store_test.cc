// SPDX-License-Identifier: Apache-2.0
#include "storage/object_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/temp_folder.h"
#include "storage/testing/faulty_files.h"
#include "storage/testing/faulty_store.h"
#include "storage/testing/memory_files.h"
#include "storage/testing/memory_store.h"
#include "storage/testing/testing.h"

namespace skerry::storage {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

// Of a coordinator and of a node.
class ObjectStoreTest : public testing::TestWithParam<Checkpoints> {
 protected:
  ObjectStoreTest() { restart(); }

  // What a new process finds. A crash loses what was not flushed.
  void restart() {
    objects_.reset();
    store_.crash(++crashes_);
    objects_ = value_of(ObjectStore::open(store_, folder_ / "files", GetParam()));
  }

  NamedManifest make_file(const std::string& name, std::size_t bytes, std::uint64_t seed) {
    contents_ = random_bytes(bytes, seed);
    std::ofstream(folder_ / name, std::ios::binary) << contents_;
    return value_of(build_file_manifest(folder_ / name, name));
  }

  // Puts every chunk but the last `left_out`.
  void put_file(const NamedManifest& named, std::size_t left_out = 0) {
    const Layout layout = file_layout(named.manifest);
    for (std::size_t i = 0; i + left_out < layout.placements.size(); ++i) {
      const Placement& place = layout.placements[i];
      value_of(objects_->put(named.name, place.chunk.hash,
                             contents_.substr(place.offset, place.chunk.bytes)));
    }
  }

  NamedManifest store(Step step, std::uint64_t seed = 1) {
    return value_of(objects_->store_checkpoint(snapshot(seed), checkpoint_facts(step)));
  }

  static std::string read_back(const ObjectStore& objects, const NamedManifest& named) {
    TempFolder folder;
    const auto source = [&](std::span<const Hash> hashes) {
      return objects.read_each(named.name, hashes);
    };
    value_of(assemble_file(value_of(safetensors_layout(named.manifest)), source, folder / "out"));
    return std::string(value_of(Safetensors::open(folder / "out")).file());
  }

  static bool as_files() { return GetParam() == Checkpoints::kAsFiles; }
  std::size_t count_files() const {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(folder_ / "files"), {}));
  }
  // Nothing lies there but these many checkpoints.
  void expect_on_disk(std::size_t checkpoints) const {
    EXPECT_EQ(disk_.families().size(), as_files() ? 0 : checkpoints);
    EXPECT_EQ(count_files(), as_files() ? checkpoints : 0);
  }
  void damage(const NamedManifest& named, const Hash& chunk) {
    if (!as_files()) return disk_.damage_chunk(disk_.families().front(), chunk);
    const Layout layout = value_of(layout_of(named.manifest));
    const auto place = std::find_if(layout.placements.begin(), layout.placements.end(),
                                    [&](const Placement& p) { return p.chunk.hash == chunk; });
    std::fstream(value_of(objects_->path_of(named.name)),
                 std::ios::in | std::ios::out | std::ios::binary)
        .seekp(static_cast<std::streamoff>(place->offset))
        .write("XXXX", 4);
  }

  TempFolder folder_;
  MemoryStore disk_;
  FaultyStore store_{disk_};
  std::uint64_t crashes_ = 0;
  std::string contents_;
  std::unique_ptr<ObjectStore> objects_;
};

TEST_P(ObjectStoreTest, a_sealed_checkpoint_survives_a_crash_whole) {
  const NamedManifest named = store(100);
  restart();
  ASSERT_TRUE(objects_->has(named.name));
  EXPECT_EQ(read_back(*objects_, named), snapshot_bytes(1));
  EXPECT_EQ(value_of(objects_->read(named.name, named.name)), named.encoded);
  const ObjectInfo info = value_of(objects_->info(named.name));
  EXPECT_EQ(info.facts.step, 100U);
  EXPECT_EQ(info.bytes, named.manifest.bytes());
  EXPECT_EQ(info.manifest_bytes, named.encoded.size());
  EXPECT_TRUE(info.facts.parts.empty());
}

TEST_P(ObjectStoreTest, the_same_checkpoint_twice_is_one_object) {
  const NamedManifest named = store(100);
  EXPECT_EQ(store(100).name, named.name);
  EXPECT_THAT(objects_->list(), SizeIs(1));
}

TEST_P(ObjectStoreTest, two_epochs_with_the_same_bytes_do_not_share_a_family) {
  const NamedManifest old =
      value_of(objects_->store_checkpoint(snapshot(1), checkpoint_facts(100, 7)));
  const NamedManifest fresh =
      value_of(objects_->store_checkpoint(snapshot(1), checkpoint_facts(100, 8)));
  ASSERT_NE(old.name, fresh.name);
  value_of(objects_->drop(old.name));
  EXPECT_EQ(read_back(*objects_, fresh), snapshot_bytes(1));
}

TEST_P(ObjectStoreTest, nothing_is_visible_before_it_is_sealed) {
  const Safetensors tensors = snapshot(1);
  const NamedManifest named = value_of(build_checkpoint_manifest(tensors, checkpoint_facts()));
  EXPECT_THAT(value_of(objects_->begin(named)), IsEmpty());
  const Hash first = distinct_chunks(named.manifest).front().hash;
  EXPECT_EQ(objects_->seal(named.name).error().code, ErrorCode::kConflict);
  value_of(for_each_chunk(named.manifest, tensors, [&](const Hash& hash, std::string_view bytes) {
    return objects_->put(named.name, hash, bytes);
  }));
  EXPECT_FALSE(objects_->has(named.name));
  EXPECT_EQ(objects_->read(named.name, first).error().code, ErrorCode::kNotFound);
  EXPECT_THAT(objects_->list(), IsEmpty());
  EXPECT_THAT(objects_->partials(), SizeIs(1));
  value_of(objects_->seal(named.name));
  EXPECT_TRUE(objects_->has(named.name));
  EXPECT_THAT(objects_->partials(), IsEmpty());
}

TEST_P(ObjectStoreTest, what_has_come_may_be_passed_on_before_it_is_sealed) {
  const Safetensors tensors = snapshot(1);
  const NamedManifest checkpoint = value_of(build_checkpoint_manifest(tensors, checkpoint_facts()));
  const std::vector<Chunk> chunks = distinct_chunks(checkpoint.manifest);
  EXPECT_EQ(objects_->read_received(checkpoint.name, checkpoint.name).error().code,
            ErrorCode::kNotFound);
  value_of(objects_->begin(checkpoint));
  EXPECT_EQ(value_of(objects_->read_received(checkpoint.name, checkpoint.name)),
            checkpoint.encoded);
  std::string bytes_of_first;
  value_of(
      for_each_chunk(checkpoint.manifest, tensors, [&](const Hash& hash, std::string_view bytes) {
        if (hash != chunks.front().hash) return Result<void>();
        bytes_of_first = bytes;
        return objects_->put(checkpoint.name, hash, bytes);
      }));
  EXPECT_EQ(value_of(objects_->read_received(checkpoint.name, chunks.front().hash)),
            bytes_of_first);
  EXPECT_EQ(objects_->read_received(checkpoint.name, chunks.back().hash).error().code,
            ErrorCode::kNotFound);

  const std::string contents = random_bytes(2 * kMaxChunkBytes, 3);
  Manifest facts;
  facts.name = "data";
  const std::string second = contents.substr(kMaxChunkBytes);
  facts.parts.push_back({std::string(kPartFile),
                         {},
                         {{blake2b(contents.substr(0, kMaxChunkBytes)), kMaxChunkBytes},
                          {blake2b(second), kMaxChunkBytes}}});
  const NamedManifest file = value_of(encode_manifest(facts));
  const Hash first = file.manifest.parts[0].chunks[0].hash;
  value_of(objects_->begin(file));
  value_of(objects_->put(file.name, blake2b(second), second));
  EXPECT_EQ(value_of(objects_->read_received(file.name, blake2b(second))), second);
  EXPECT_EQ(objects_->read_received(file.name, first).error().code, ErrorCode::kNotFound);
  value_of(objects_->put(file.name, first, std::string_view(contents).substr(0, kMaxChunkBytes)));
  value_of(objects_->seal(file.name));
  EXPECT_EQ(objects_->read_received(file.name, first).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(value_of(objects_->read(file.name, first)), contents.substr(0, kMaxChunkBytes));
}

TEST_P(ObjectStoreTest, an_interrupted_checkpoint_goes_on_from_what_was_flushed) {
  const Safetensors tensors = snapshot(1);
  const NamedManifest named = value_of(build_checkpoint_manifest(tensors, checkpoint_facts()));
  value_of(objects_->begin(named));
  std::size_t puts = 0;
  value_of(for_each_chunk(
      named.manifest, tensors, [&](const Hash& hash, std::string_view bytes) -> Result<void> {
        return ++puts > 4 ? Result<void>() : objects_->put(named.name, hash, bytes);
      }));
  value_of(objects_->flush(named.name));
  restart();
  EXPECT_FALSE(objects_->has(named.name));
  EXPECT_THAT(objects_->partials(), SizeIs(1));
  const std::vector<Hash> present = value_of(objects_->begin(named));
  EXPECT_THAT(present, SizeIs(as_files() ? 5 : 4));  // a hole in a file is a chunk of zeros
  value_of(for_each_chunk(
      named.manifest, tensors, [&](const Hash& hash, std::string_view bytes) -> Result<void> {
        const bool is_there = std::find(present.begin(), present.end(), hash) != present.end();
        return is_there ? Result<void>() : objects_->put(named.name, hash, bytes);
      }));
  value_of(objects_->seal(named.name));
  EXPECT_EQ(read_back(*objects_, named), snapshot_bytes(1));
}

// Any operation may fail, with or without taking effect. After the restart the
// checkpoint is whole or absent and the older one is untouched. Storing it
// again works.
TEST_P(ObjectStoreTest, a_failure_at_any_point_of_storing_loses_nothing_that_was_sealed) {
  const NamedManifest before = store(50, 9);
  unsigned failures = 0;
  for (const StoreOperation operation : {StoreOperation::kWrite, StoreOperation::kPutChunk,
                                         StoreOperation::kFlush, StoreOperation::kCreateFamily}) {
    for (const FailedEffect effect : {FailedEffect::kNone, FailedEffect::kApplied}) {
      for (unsigned nth = 1; nth <= 3; ++nth) {
        store_.fail_at(operation, nth, ErrorCode::kIo, effect);
        const auto stored = objects_->store_checkpoint(snapshot(2), checkpoint_facts(100));
        EXPECT_EQ(store_.failed(), !stored.has_value());
        failures += !stored.has_value();
        restart();
        EXPECT_EQ(read_back(*objects_, before), snapshot_bytes(9));
        const NamedManifest named = store(100, 2);
        EXPECT_EQ(read_back(*objects_, named), snapshot_bytes(2));
        value_of(objects_->drop(named.name));
      }
    }
  }
  EXPECT_GE(failures, as_files() ? 2U : 14U);
}

TEST_P(ObjectStoreTest, start_up_drops_what_no_manifest_names) {
  const NamedManifest named = store(100);
  value_of(disk_.create_family(FamilyName("ckpt-orphan")));
  std::ofstream(folder_ / "files/stray") << "x";
  std::ofstream(folder_ / "files/stray.partial") << "x";
  restart();
  expect_on_disk(1);
  EXPECT_TRUE(objects_->has(named.name));
}

TEST_P(ObjectStoreTest, a_dropped_object_is_gone_after_a_restart_too) {
  const NamedManifest kept = store(50);
  const NamedManifest dropped = store(100);
  value_of(objects_->drop(dropped.name));
  EXPECT_EQ(objects_->drop(dropped.name).error().code, ErrorCode::kNotFound);
  restart();
  EXPECT_FALSE(objects_->has(dropped.name));
  EXPECT_TRUE(objects_->has(kept.name));
  expect_on_disk(1);
}

TEST_P(ObjectStoreTest, a_crash_while_dropping_leaves_it_whole_or_gone) {
  const NamedManifest named = store(100);
  store_.fail_at(as_files() ? StoreOperation::kWrite : StoreOperation::kDropFamily, 1,
                 ErrorCode::kIo, FailedEffect::kApplied);
  EXPECT_FALSE(objects_->drop(named.name).has_value());
  restart();
  EXPECT_FALSE(objects_->has(named.name));
  expect_on_disk(0);
}

TEST_P(ObjectStoreTest, a_file_is_received_sealed_and_mapped) {
  const NamedManifest named = make_file("shard", 3 * kMaxChunkBytes + 12, 5);
  EXPECT_THAT(value_of(objects_->begin(named)), IsEmpty());
  put_file(named);
  EXPECT_EQ(objects_->path_of(named.name).error().code, ErrorCode::kNotFound);
  value_of(objects_->seal(named.name));
  restart();
  EXPECT_EQ(std::filesystem::file_size(value_of(objects_->path_of(named.name))), contents_.size());
  for (const Placement& place : file_layout(named.manifest).placements) {
    EXPECT_EQ(value_of(objects_->read(named.name, place.chunk.hash)),
              contents_.substr(place.offset, place.chunk.bytes));
  }
  value_of(objects_->drop(named.name));
  EXPECT_TRUE(std::filesystem::is_empty(folder_ / "files"));
}

TEST_P(ObjectStoreTest, an_interrupted_file_goes_on) {
  const NamedManifest named = make_file("shard", 3 * kMaxChunkBytes, 5);
  value_of(objects_->begin(named));
  put_file(named, 1);
  restart();
  EXPECT_THAT(value_of(objects_->begin(named)), SizeIs(2));
  EXPECT_EQ(objects_->seal(named.name).error().code, ErrorCode::kConflict);
  put_file(named);
  value_of(objects_->seal(named.name));
  EXPECT_TRUE(objects_->has(named.name));
}

// As on a disk that is full for a while: the file has its name, and its marker
// is refused.
TEST_P(ObjectStoreTest, a_file_whose_marker_was_refused_is_sealed_later) {
  const NamedManifest named = make_file("shard", kMaxChunkBytes + 4, 5);
  value_of(objects_->begin(named));
  put_file(named);
  disk_.set_capacity(0);
  EXPECT_EQ(objects_->seal(named.name).error().code, ErrorCode::kExhausted);
  disk_.set_capacity(SIZE_MAX);
  EXPECT_THAT(value_of(objects_->begin(named)), SizeIs(2)) << "nothing is fetched again";
  value_of(objects_->seal(named.name));
  EXPECT_TRUE(objects_->has(named.name));
}

TEST_P(ObjectStoreTest, a_file_that_was_renamed_but_not_marked_is_not_fetched_again) {
  const NamedManifest named = make_file("shard", kMaxChunkBytes + 4, 5);
  value_of(objects_->begin(named));
  put_file(named);
  store_.fail_at(StoreOperation::kWrite, 1);
  EXPECT_FALSE(objects_->seal(named.name).has_value());
  restart();
  EXPECT_FALSE(objects_->has(named.name));
  EXPECT_THAT(value_of(objects_->begin(named)), SizeIs(2));
  value_of(objects_->seal(named.name));
  EXPECT_TRUE(objects_->has(named.name));
}

TEST_P(ObjectStoreTest, a_damaged_file_is_refused_found_and_fetched_again) {
  const NamedManifest named = make_file("shard", 2 * kMaxChunkBytes, 5);
  value_of(objects_->begin(named));
  put_file(named);
  value_of(objects_->seal(named.name));
  EXPECT_TRUE(value_of(objects_->verify(named.name)));
  std::fstream(value_of(objects_->path_of(named.name)),
               std::ios::in | std::ios::out | std::ios::binary)
      .write("XXXX", 4);
  const auto read =
      objects_->read(named.name, file_layout(named.manifest).placements[0].chunk.hash);
  EXPECT_EQ(read.error().code, ErrorCode::kCorrupt);
  EXPECT_FALSE(value_of(objects_->verify(named.name)));
  EXPECT_FALSE(objects_->has(named.name));
  restart();
  EXPECT_THAT(value_of(objects_->begin(named)), SizeIs(1));
  put_file(named);
  value_of(objects_->seal(named.name));
  EXPECT_TRUE(value_of(objects_->verify(named.name)));
}

TEST_P(ObjectStoreTest, a_damaged_checkpoint_is_refused_found_and_fetched_again) {
  const NamedManifest named = store(100);
  const Hash damaged = distinct_chunks(named.manifest).back().hash;
  damage(named, damaged);
  EXPECT_EQ(objects_->read(named.name, damaged).error().code, ErrorCode::kCorrupt);
  const TempFolder out;
  const auto assembled = assemble_file(
      value_of(safetensors_layout(named.manifest)),
      [&](std::span<const Hash> hashes) { return objects_->read_each(named.name, hashes); },
      out / "file");
  EXPECT_EQ(assembled.error().code, ErrorCode::kCorrupt);
  EXPECT_TRUE(std::filesystem::is_empty(out.path()));
  EXPECT_FALSE(value_of(objects_->verify(named.name)));
  EXPECT_EQ(objects_->read(named.name, damaged).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(store(100).name, named.name);
  EXPECT_EQ(read_back(*objects_, named), snapshot_bytes(1));
}

TEST_P(ObjectStoreTest, a_file_that_somebody_removed_is_found) {
  const NamedManifest named = make_file("shard", 2 * kMaxChunkBytes, 5);
  value_of(objects_->begin(named));
  put_file(named);
  value_of(objects_->seal(named.name));
  value_of(objects_->read(named.name, file_layout(named.manifest).placements[0].chunk.hash));
  std::filesystem::remove(value_of(objects_->path_of(named.name)));
  EXPECT_FALSE(value_of(objects_->verify(named.name))) << "although it is open";
}

TEST_P(ObjectStoreTest, a_damaged_header_is_found_and_written_again) {
  if (!as_files()) GTEST_SKIP() << "a family has none";
  const NamedManifest named = store(100);
  std::fstream(value_of(objects_->path_of(named.name)),
               std::ios::in | std::ios::out | std::ios::binary)
      .seekp(12)
      .write("XXXX", 4);
  EXPECT_FALSE(value_of(objects_->verify(named.name)));
  EXPECT_THAT(value_of(objects_->begin(named)), SizeIs(distinct_chunks(named.manifest).size()));
  value_of(objects_->seal(named.name));
  EXPECT_TRUE(value_of(objects_->verify(named.name)));
}

TEST_P(ObjectStoreTest, a_damaged_checkpoint_is_whole_once_it_is_stored_again) {
  const NamedManifest named = store(100);
  const Hash damaged = distinct_chunks(named.manifest).back().hash;
  damage(named, damaged);
  EXPECT_EQ(objects_->read(named.name, damaged).error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(store(100).name, named.name);
  EXPECT_EQ(read_back(*objects_, named), snapshot_bytes(1));
}

TEST_P(ObjectStoreTest, what_was_whole_and_is_gone_is_fetched_again) {
  const NamedManifest named = store(100);
  if (as_files()) {
    std::filesystem::remove(value_of(objects_->path_of(named.name)));
  } else {
    value_of(disk_.drop_family(disk_.families().front()));
  }
  restart();
  EXPECT_FALSE(objects_->has(named.name));
  EXPECT_THAT(value_of(objects_->begin(named)), IsEmpty());
  EXPECT_EQ(store(100).name, named.name);
  EXPECT_EQ(read_back(*objects_, named), snapshot_bytes(1));
  restart();
  expect_on_disk(1);
}

TEST_P(ObjectStoreTest, a_view_knows_partial_objects_and_reads_what_is_left_of_them) {
  const NamedManifest named = store(100);
  const std::vector<Chunk> chunks = distinct_chunks(named.manifest);
  const auto expect_left = [&] {
    const auto view = value_of(ObjectStore::view(store_, folder_ / "files", GetParam()));
    EXPECT_EQ(value_of(view->known_manifest(named.name)).encoded, named.encoded);
    EXPECT_EQ(view->salvage(named.name, chunks.front().hash).error().code, ErrorCode::kCorrupt);
    for (std::size_t i = 1; i < chunks.size(); ++i)
      EXPECT_EQ(blake2b(value_of(view->salvage(named.name, chunks[i].hash))), chunks[i].hash);
    return std::pair(view->list().size(), view->partials().size());
  };
  damage(named, chunks.front().hash);
  EXPECT_EQ(expect_left(), std::pair(1UL, 0UL));
  EXPECT_FALSE(value_of(objects_->verify(named.name)));
  EXPECT_EQ(expect_left(), std::pair(0UL, 1UL));
  value_of(objects_->begin(named));
  EXPECT_EQ(expect_left(), std::pair(0UL, 1UL));
  const auto view = value_of(ObjectStore::view(store_, folder_ / "files", GetParam()));
  EXPECT_EQ(view->read(named.name, chunks.back().hash).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(view->known_manifest(blake2b("none")).error().code, ErrorCode::kNotFound);
}

TEST_P(ObjectStoreTest, an_engine_can_map_a_checkpoint_of_a_node) {
  const NamedManifest named = store(100);
  if (!as_files()) {
    EXPECT_EQ(objects_->path_of(named.name).error().code, ErrorCode::kInvalid);
    return;
  }
  EXPECT_EQ(value_of(Safetensors::open(value_of(objects_->path_of(named.name)))).file(),
            snapshot_bytes(1));
}

TEST_P(ObjectStoreTest, a_full_disk_refuses_and_goes_on_later) {
  disk_.set_capacity(0);
  EXPECT_EQ(objects_->store_checkpoint(snapshot(1), checkpoint_facts()).error().code,
            ErrorCode::kExhausted);
  const NamedManifest file = make_file("shard", 1000, 5);
  EXPECT_EQ(objects_->begin(file).error().code, ErrorCode::kExhausted);
  EXPECT_FALSE(store_.failed());
  disk_.set_capacity(SIZE_MAX);
  EXPECT_EQ(read_back(*objects_, store(100)), snapshot_bytes(1));
}

TEST_P(ObjectStoreTest, what_will_not_fit_is_not_begun) {
  const NamedManifest file = make_file("shard", 10'000, 5);
  disk_.set_capacity(4000);
  EXPECT_EQ(objects_->begin(file).error().code, ErrorCode::kExhausted);
  EXPECT_EQ(objects_->put(file.name, file.manifest.parts[0].chunks[0].hash, "").error().code,
            ErrorCode::kNotFound);
  disk_.set_capacity(1 << 20);
  EXPECT_TRUE(objects_->begin(file).has_value());
}

TEST_P(ObjectStoreTest, equal_chunks_of_a_file_need_room_each) {
  std::ofstream(folder_ / "zeros", std::ios::binary) << std::string(2 * kMaxChunkBytes, '\0');
  const NamedManifest zeros = value_of(build_file_manifest(folder_ / "zeros", "zeros"));
  ASSERT_THAT(distinct_chunks(zeros.manifest), SizeIs(1));
  disk_.set_capacity(kMaxChunkBytes + kMaxChunkBytes / 2);
  EXPECT_EQ(objects_->begin(zeros).error().code, ErrorCode::kExhausted);
  disk_.set_capacity(3 * kMaxChunkBytes);
  EXPECT_TRUE(objects_->begin(zeros).has_value());
}

TEST_P(ObjectStoreTest, a_damaged_manifest_refuses_to_start) {
  const NamedManifest named = store(100);
  Manifest other = named.manifest;
  other.step += 1;
  value_of(disk_.write({{"object/" + named.name.hex(), value_of(encode_manifest(other)).encoded}}));
  EXPECT_EQ(objects_->manifest(named.name).error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(ObjectStore::open(disk_, folder_ / "files", GetParam()).error().code,
            ErrorCode::kCorrupt);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, ObjectStoreTest,
                         testing::Values(Checkpoints::kInStore, Checkpoints::kAsFiles),
                         [](const auto& with) -> std::string {
                           return with.param == Checkpoints::kInStore ? "InStore" : "AsFiles";
                         });

TEST(BeyondLast, keeps_the_latest_of_each_expert_and_what_is_pinned) {
  std::vector<ObjectInfo> objects;
  const auto add = [&](ExpertIndex expert, Step step) {
    ObjectInfo info{.name = blake2b(std::to_string(expert * 1000 + step)),
                    .kind = ManifestKind::kCheckpoint};
    info.facts = checkpoint_facts(step + 50);
    info.facts.expert = expert;
    objects.push_back(info);
    return info.name;
  };
  const Hash oldest = add(0, 10);
  const Hash pinned = add(0, 20);
  add(0, 40);
  add(0, 30);
  add(1, 5);
  objects.push_back({.name = blake2b("file"), .kind = ManifestKind::kFile});
  EXPECT_THAT(beyond_last(objects, 2, {pinned}), ElementsAre(oldest));
  EXPECT_THAT(beyond_last(objects, 9, {}), IsEmpty());
}

// As the weights of a checkpoint and their average before the first step.
TEST(ObjectStoreOnMemoryFiles, a_chunk_that_stands_twice_is_checked_at_each_place) {
  MemoryStore store;
  MemoryFiles files;
  const auto objects = value_of(ObjectStore::open(store, "/objects", Checkpoints::kAsFiles, files));
  const std::string bytes = random_bytes(100, 1);
  const auto tensors = value_of(Safetensors::parse(value_of(encode_safetensors(
      {{"ema/w", DType::kF32, {25}, bytes}, {"raw/w", DType::kF32, {25}, bytes}}, {}))));
  const NamedManifest named = value_of(objects->store_checkpoint(tensors, checkpoint_facts(50)));
  const std::string path = value_of(objects->path_of(named.name));
  const std::uint64_t size = value_of(value_of(files.open(path, Files::Open::kRead))->size());
  for (const std::uint64_t offset : {size - 1, size - 101}) {
    EXPECT_TRUE(objects->check(named.name).has_value());
    files.damage(path, offset);
    EXPECT_EQ(objects->check(named.name).error().code, ErrorCode::kCorrupt) << "at " << offset;
    files.damage(path, offset);
  }
}

// The machine ends at any operation; afterwards all that was acknowledged is
// whole, and what was not is whole or no object.
TEST(ObjectStoreOnFaultyFiles, what_was_acknowledged_survives_every_crash) {
  unsigned failed = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Stream random(Position{.seed = seed, .purpose = Purpose::kSimulation});
    MemoryStore disk;
    FaultyStore store(disk);
    MemoryFiles memory;
    FaultyFiles files(memory);
    auto objects = value_of(ObjectStore::open(store, "/objects", Checkpoints::kAsFiles, files));
    const FailedEffect effect = random.below(2) == 0 ? FailedEffect::kNone : FailedEffect::kApplied;
    const auto operation = static_cast<FileOperation>(random.below(6));
    files.fail_at(operation, static_cast<unsigned>(1 + random.below(6)), ErrorCode::kIo, effect);
    std::vector<Hash> whole;
    for (Step step = 1; step <= 4 && !store.failed(); ++step) {
      const std::string bytes = random_bytes(100, seed * 10 + step);
      const auto tensors = value_of(Safetensors::parse(
          value_of(encode_safetensors({{"raw/w", DType::kF32, {25}, bytes}}, {}))));
      const auto named = objects->store_checkpoint(tensors, checkpoint_facts(50 + step));
      EXPECT_TRUE(named || store.failed()) << named.error().message;
      if (named) whole.push_back(named->name);
      if (whole.size() < 3) continue;
      [[maybe_unused]] const Result<void> dropped = objects->drop(whole.front());
      whole.erase(whole.begin());
    }
    failed += store.failed() ? 1 : 0;
    objects.reset();
    files.crash(seed);
    store.crash(seed);
    objects = value_of(ObjectStore::open(store, "/objects", Checkpoints::kAsFiles, files));
    for (const Hash& each : whole) EXPECT_TRUE(objects->check(each).has_value()) << "seed " << seed;
    for (const ObjectInfo& each : objects->list())
      EXPECT_TRUE(objects->check(each.name).has_value()) << "seed " << seed;
  }
  EXPECT_GT(failed, 50U);
}

}  // namespace
}  // namespace skerry::storage
