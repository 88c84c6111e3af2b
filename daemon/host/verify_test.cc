// SPDX-License-Identifier: Apache-2.0
#include "daemon/host/verify.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/temp_folder.h"
#include "base/text.h"
#include "storage/testing/memory_store.h"

namespace skerry::daemon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class VerifyTest : public testing::Test {
 protected:
  // A file of two chunks.
  Hash add_file(const std::string& name) {
    storage::Manifest manifest;
    manifest.kind = storage::ManifestKind::kFile;
    manifest.name = name;
    storage::ManifestPart& part = manifest.parts.emplace_back();
    part.name = storage::kPartFile;
    // All but the last chunk of a file are full.
    const std::string first(storage::kMaxChunkBytes, name[0]), second = "the end of " + name;
    for (const std::string& bytes : {first, second})
      part.chunks.push_back({blake2b(bytes), static_cast<std::uint32_t>(bytes.size())});
    const storage::NamedManifest named = storage::encode_manifest(manifest).value();
    EXPECT_TRUE(objects->begin(named));
    for (const std::string& bytes : {first, second})
      EXPECT_TRUE(objects->put(named.name, blake2b(bytes), bytes));
    EXPECT_TRUE(objects->seal(named.name));
    return named.name;
  }
  void flip_last_byte(const Hash& object) {
    const std::string path = objects->path_of(object).value();
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('?');
  }

  TempFolder folder;
  storage::MemoryStore store;
  std::unique_ptr<storage::ObjectStore> objects =
      storage::ObjectStore::open(store, folder / "files", storage::Checkpoints::kAsFiles).value();
  std::vector<std::uint64_t> shown;
};

TEST_F(VerifyTest, NamesWhatIsDamagedAndCountsAll) {
  add_file("whole");
  const Hash damaged = add_file("damaged");
  const auto show = [&](std::uint64_t done, std::uint64_t total) {
    EXPECT_LE(done, total);
    shown.push_back(done);
  };
  const DiskVerdict before = verify_disk(*objects, show);
  EXPECT_EQ(before.objects, 2U);
  EXPECT_THAT(before.damaged, IsEmpty());
  EXPECT_EQ(shown.back(), before.bytes);
  EXPECT_TRUE(std::ranges::is_sorted(shown));
  EXPECT_THAT(verdict_words(before), HasSubstr("checked 2 objects, 8.0 MiB: all whole"));

  flip_last_byte(damaged);
  const DiskVerdict verdict = verify_disk(*objects, [](std::uint64_t, std::uint64_t) {});
  EXPECT_EQ(verdict.bytes, before.bytes);
  ASSERT_EQ(verdict.damaged.size(), 1U);
  EXPECT_EQ(verdict.damaged[0].info.name, damaged);
  EXPECT_THAT(verdict.damaged[0].chunks, ElementsAre(blake2b("the end of damaged")));
  EXPECT_THAT(verdict_words(verdict), HasSubstr("file damaged, object "));
  const auto said = nlohmann::json::parse(verdict_json(verdict));
  EXPECT_EQ(said["checked"], 2);
  EXPECT_EQ(said["damaged"][0]["object"], damaged.hex());
  EXPECT_EQ(said["damaged"][0]["damaged_chunks"][0], blake2b("the end of damaged").hex());
  EXPECT_TRUE(said["damaged"][0]["run"].is_null());

  // The daemon hears of it once.
  const std::string path = folder / "distrusted";
  ASSERT_TRUE(write_distrusted(path, verdict.damaged));
  EXPECT_THAT(take_distrusted(path), ElementsAre(damaged));
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_THAT(take_distrusted(path), IsEmpty());
}

TEST_F(VerifyTest, WhatIsNoNameIsPassedOver) {
  const std::string path = folder / "distrusted";
  std::ofstream(path) << "nonsense\n"
                      << blake2b("a").hex() << "\n\n"
                      << blake2b("b").hex().substr(2) << "\n";
  EXPECT_THAT(take_distrusted(path), ElementsAre(blake2b("a")));
}

}  // namespace
}  // namespace skerry::daemon
