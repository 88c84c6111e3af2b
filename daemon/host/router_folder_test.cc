// SPDX-License-Identifier: Apache-2.0
#include "daemon/host/router_folder.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/temp_folder.h"
#include "gossip/testing/testing.h"
#include "storage/testing/memory_store.h"

namespace skerry::daemon {
namespace {

using gossip::Author;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return std::move(bytes).str();
}

// A node's disk: two experts and a learned router, as the records of a
// coordinator and of two nodes tell of them.
class RouterFolderTest : public testing::Test {
 protected:
  RouterFolderTest() {
    router = file("the router");
    for (int i = 0; i < 2; ++i) statistics.push_back(file(text("statistics of ", i)));
  }

  pb::ObjectRef file(const std::string& bytes) {
    storage::Manifest manifest;
    manifest.kind = storage::ManifestKind::kFile;
    manifest.name = "file";
    manifest.parts.push_back({std::string(storage::kPartFile),
                              {},
                              {{blake2b(bytes), static_cast<std::uint32_t>(bytes.size())}}});
    const storage::NamedManifest named = storage::encode_manifest(manifest).value();
    contents[named.name] = {named, bytes};
    pb::ObjectRef ref;
    ref.set_manifest(named.name.raw());
    ref.set_manifest_bytes(named.encoded.size());
    ref.set_bytes(bytes.size());
    return ref;
  }
  void store_file(const pb::ObjectRef& ref) {
    const auto& [named, bytes] = contents.at(Hash::from_raw(ref.manifest()).value());
    ASSERT_TRUE(objects->begin(named));
    ASSERT_TRUE(objects->put(named.name, blake2b(bytes), bytes));
    ASSERT_TRUE(objects->seal(named.name));
  }
  void store_all() {
    store_file(router);
    for (const pb::ObjectRef& each : statistics) store_file(each);
  }
  void tell(const Author& author, const pb::RecordBody& fact) {
    table.put(gossip::genuine(verifier, author.sign(fact, ++counter)), {}, now,
              gossip::Origin::kSelf);
  }
  pb::RecordBody expert(ExpertIndex index, const std::string& checkpoint) {
    pb::RecordBody body = gossip::expert_fact("r-1", index, 60 + index, checkpoint);
    body.mutable_expert()->clear_statistics();
    if (index < statistics.size()) *body.mutable_expert()->mutable_statistics() = statistics[index];
    return body;
  }
  void tell_all() {
    pb::RecordBody run = gossip::run_fact("r-1", 3);
    *run.mutable_run()->mutable_router() = router;
    run.mutable_run()->add_without(2);
    run.mutable_run()->set_trains_router(true);
    tell(coordinator, run);
    tell(coordinator, expert(0, "zero"));
    tell(coordinator, expert(1, "one"));
    tell(coordinator, expert(2, "weights"));
    pb::RecordBody node = gossip::node_fact("tcp://192.0.2.7:4000", {"zero", "weights"});
    for (const pb::ObjectRef& each : statistics)
      node.mutable_node()->mutable_holds()->append(each.manifest().substr(0, gossip::kHoldBytes));
    tell(Author(1), node);
    tell(Author(2), gossip::node_fact("", {"one"}));
  }
  // As a daemon saved it and a later program reads it.
  Result<RouterFolder> write(const std::string& run) {
    EXPECT_TRUE(store.write({{gossip::kTableKey, gossip::save_table(table, now)}}));
    const auto saved = saved_records(store, gossip::the_coordinator().ed25519_key(), now);
    if (!saved) return saved.error();
    return write_router_folder(*saved, *objects, run, out, now);
  }
  std::string refusal(const std::string& run) {
    const auto made = write(run);
    EXPECT_FALSE(made.has_value());
    EXPECT_FALSE(std::filesystem::exists(out));
    EXPECT_FALSE(std::filesystem::exists(out + ".partial"));
    return made ? "" : made.error().message;
  }

  TempFolder folder;
  const std::string out = folder / "router";
  storage::MemoryStore store;
  std::unique_ptr<storage::ObjectStore> objects =
      storage::ObjectStore::open(store, folder / "files", storage::Checkpoints::kAsFiles).value();
  std::map<Hash, std::pair<storage::NamedManifest, std::string>> contents;
  pb::ObjectRef router;
  std::vector<pb::ObjectRef> statistics;
  const Author coordinator{0};
  gossip::Verifier verifier{gossip::the_coordinator().ed25519_key()};
  gossip::Table table{gossip::the_coordinator().node_id()};
  std::uint64_t counter = 0;
  const Now now = gossip::at(std::chrono::hours(1));
};

TEST_F(RouterFolderTest, IsWhatAnEnsembleHasAndSaysWhereTheExpertsAre) {
  tell_all();
  store_all();
  const auto made = write("birds");
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(read_file(out + "/router.safetensors"), "the router");
  EXPECT_EQ(read_file(out + "/partition-0.safetensors"), "statistics of 0");
  EXPECT_EQ(read_file(out + "/partition-1.safetensors"), "statistics of 1");
  EXPECT_EQ(read_file(out + "/experts.json"), made->index);

  const json list = json::parse(made->index);
  EXPECT_EQ(list["run_id"], "r-1");
  ASSERT_EQ(list["experts"].size(), 2U);
  const json& one = list["experts"][1];
  EXPECT_EQ(one["index"], 1);
  EXPECT_EQ(one["step"], 61);
  EXPECT_EQ(one["round"], 6);
  EXPECT_EQ(one["epoch"], 1);
  EXPECT_EQ(one["manifest"], blake2b("one").hex());
  EXPECT_EQ(one["acknowledged"], true);
  ASSERT_EQ(one["holders"].size(), 1U);
  EXPECT_TRUE(one["holders"][0]["address"].is_null()) << "it only dials out";
  EXPECT_EQ(list["experts"][0]["holders"][0]["id"], Author(1).id().str());
  EXPECT_THAT(list["experts"][0]["holders"][0]["address"].get<std::string>(),
              HasSubstr("192.0.2.7:4000#"));
  EXPECT_EQ(list["learned_router"]["manifest"], blake2b("weights").hex());
  EXPECT_THAT(made->words, AllOf(HasSubstr("expert 0: step 60, epoch 0.1"),
                                 HasSubstr("with rented (192.0.2.7")));
}

TEST_F(RouterFolderTest, AnExpertThatWasRemovedIsNotInIt) {
  tell_all();
  pb::RecordBody run = gossip::run_fact("r-1", 2);
  *run.mutable_run()->mutable_router() = router;
  run.mutable_run()->add_without(0);
  tell(coordinator, run);
  store_all();
  ASSERT_TRUE(write("r-1"));
  EXPECT_FALSE(std::filesystem::exists(out + "/partition-0.safetensors"));
  EXPECT_TRUE(std::filesystem::exists(out + "/partition-1.safetensors"));
}

TEST_F(RouterFolderTest, SaysWhatIsNotHereAndWhoHasIt) {
  EXPECT_THAT(refusal("birds"), HasSubstr("they tell of none"));
  tell(coordinator, gossip::run_fact("r-1", 1));
  EXPECT_THAT(refusal("fish"), HasSubstr("they tell of birds"));
  EXPECT_THAT(refusal("birds"), HasSubstr("expert 0: no record tells of a checkpoint"));
  tell_all();
  store_file(statistics[0]);
  EXPECT_THAT(refusal("birds"),
              AllOf(HasSubstr("router.safetensors is with no node that has said so"),
                    HasSubstr("partition-1.safetensors is with rented (192.0.2.7:4000#"),
                    Not(HasSubstr("partition-0"))));
}

TEST_F(RouterFolderTest, WhatIsThereIsLeftAlone) {
  tell_all();
  store_all();
  std::filesystem::create_directory(out);
  EXPECT_EQ(write("birds").error().code, ErrorCode::kConflict);
  EXPECT_TRUE(std::filesystem::is_empty(out));
}

}  // namespace
}  // namespace skerry::daemon
