// SPDX-License-Identifier: Apache-2.0
// Commands that ask the nodes themselves, on records that a test has signed.
#include "cli/connect/fleet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/temp_folder.h"
#include "cli/shell/exit_code.h"
#include "cli/shell/output.h"
#include "cli/testing/testing.h"
#include "gossip/testing/testing.h"

namespace skerry::cli {
namespace {

using gossip::Author;
using testing::HasSubstr;

const std::string kHost = "192.0.2.7:4000";

// Knows what `table` holds; has no objects.
class FakeFleet final : public Fleet {
 public:
  explicit FakeFleet(const gossip::Table& table) : table_(table) {}
  Result<void> learn(const std::function<bool()>&) override { return {}; }
  Result<double> bytes_per_second(const gossip::Record&, const Hash& object) override {
    if (object != blake2b("checkpoint")) return fail(ErrorCode::kUnavailable, "does not answer");
    return 3.0 * (1 << 20);
  }
  const gossip::Table& table() const override { return table_; }
  Now now() const override { return gossip::at({}); }
  Result<void> fetch(const std::vector<WantedObject>&, exchange::ChunkStore&,
                     const Shown&) override {
    return fail(ErrorCode::kUnavailable, "nobody has it");
  }

 private:
  const gossip::Table& table_;
};

class FleetTest : public testing::Test {
 protected:
  FleetTest() {
    around.make_fleet = [this] { return std::make_unique<FakeFleet>(table); };
  }
  void hold(const Author& author, const pb::RecordBody& body) {
    table.put(gossip::genuine(verifier, author.sign(body, ++counter)), {}, gossip::at({}),
              gossip::Origin::kSelf);
  }
  void add_run() {
    hold(coordinator, gossip::run_fact("r-1", 1));
    hold(coordinator, gossip::expert_fact("r-1", 0, 60, "checkpoint"));
  }
  void add_node() {
    hold(node, gossip::node_fact("tcp://" + kHost, {"checkpoint", "spec"}));
    hold(node, gossip::expert_fact("r-1", 0, 60, "checkpoint"));
  }
  Result<NodeAddress> parse(const std::string& words) {
    return parse_node_address(words, table, gossip::at({}));
  }

  const Author coordinator{0};
  const Author node{1};
  const std::string key = to_hex(node.identity.ed25519_key());
  gossip::Verifier verifier{gossip::the_coordinator().ed25519_key()};
  gossip::Table table{gossip::the_coordinator().node_id()};
  std::uint64_t counter = 0;
  FakeSurroundings around;
};

TEST_F(FleetTest, ANodeIsNamedByItsKeyOrByWhatIsRemembered) {
  ASSERT_TRUE(parse("10.0.0.1:5#" + key));
  EXPECT_EQ(parse("10.0.0.1:5#" + key)->url, "tcp://10.0.0.1:5");
  EXPECT_EQ(parse("10.0.0.1:5#" + key)->key, node.identity.ed25519_key());
  EXPECT_EQ(parse("10.0.0.1:5#" + node.id().str()).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(parse("10.0.0.1#" + key).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(parse("rented").error().code, ErrorCode::kNotFound);
  add_run();
  add_node();
  EXPECT_EQ(parse("10.0.0.1:5#" + node.id().str())->key, node.identity.ed25519_key());
  for (const std::string& words : {std::string("rented"), node.id().str()}) {
    EXPECT_EQ(parse(words)->url, "tcp://" + kHost);
    EXPECT_EQ(parse(words)->key, node.identity.ed25519_key());
  }
  EXPECT_EQ(gossip::node_address(*table.find_node(node.id(), gossip::at({}))->record),
            kHost + "#" + key);
  hold(node, gossip::node_fact(""));
  EXPECT_EQ(parse("rented").error().code, ErrorCode::kUnavailable);
}

TEST_F(FleetTest, PeerListShowsWhatEachHolds) {
  add_run();
  add_node();
  EXPECT_EQ(around({"peer", "list", "--ping", "--from", "rented"}), kExitOk) << around.told();
  EXPECT_EQ(around.fleets, std::vector<std::string>{"rented"});
  EXPECT_THAT(around.printed(), HasSubstr("birds/0 at 60"));
  EXPECT_THAT(around.printed(), HasSubstr("3.0 ms"));
  EXPECT_THAT(around.printed(), HasSubstr(kHost + "#" + key));
  EXPECT_EQ(around({"peer", "list", "-o", "json"}), kExitOk) << around.told();
  const Json item = Json::parse(around.printed())["items"].at(0);
  EXPECT_EQ(item["name"], "rented");
  EXPECT_EQ(item["objects"], 2);
  EXPECT_EQ(item["experts"].at(0)["step"], 60);
  EXPECT_TRUE(item["round_trip_ms"].is_null());
  EXPECT_TRUE(item["bytes_per_second"].is_null());
  EXPECT_EQ(around({"peer", "list", "--rate"}), kExitOk);
  EXPECT_THAT(around.printed(), HasSubstr("3.0 MiB/s"));
}

// A checkpoint of two parts, of which one chunk is in both, and a file that is
// damaged.
class ChunkTest : public FleetTest {
 protected:
  ChunkTest() {
    storage::Manifest manifest;
    manifest.kind = storage::ManifestKind::kFile;
    manifest.name = "shard-0-0.safetensors";
    manifest.parts.push_back(
        {std::string(storage::kPartFile), {}, {{blake2b("a"), 1}, {blake2b("b"), 1}}});
    shard_ = storage::encode_manifest(manifest).value();
    around.coordinator.chunks[shard_.name] = shard_.encoded;
    pb::AdminReply reply;
    add(reply, blake2b("checkpoint"), "checkpoint").set_step(60);
    pb::ObjectInfo& shard = add(reply, shard_.name, "shard");
    shard.mutable_object()->set_name(manifest.name);
    around.coordinator.answer(pb::AdminRequest::kObjectList, reply);
    around.coordinator.answers[pb::AdminRequest::kObjectVerify] =
        [this](const pb::AdminRequest& request) { return answer(request.object_verify()); };
  }
  static pb::ObjectInfo& add(pb::AdminReply& reply, const Hash& manifest, const std::string& kind) {
    pb::ObjectInfo& info = *reply.mutable_objects()->add_objects();
    info.mutable_object()->set_manifest(manifest.raw());
    info.mutable_object()->set_manifest_bytes(100);
    info.mutable_object()->set_bytes(1000);
    info.set_kind(kind);
    (kind == "checkpoint" ? *info.mutable_run() : *info.mutable_dataset()) = "birds";
    info.set_expert(0);
    info.set_state("whole");
    return info;
  }
  // Done at the third question; the shard is damaged where `damaged_` says so.
  Result<pb::AdminReply> answer(const pb::ObjectVerify& verify) {
    pb::AdminReply reply;
    pb::ObjectVerifyReply& verified = *reply.mutable_verified();
    const int asked = ++asked_[verify.manifest()];
    verified.set_checked_bytes(static_cast<std::uint64_t>(std::min(asked, 2)) * 500);
    verified.set_done(asked > 2);
    if (asked > 2 && damaged_ && verify.manifest() == shard_.name.raw()) {
      verified.add_damaged(blake2b("b").raw());
      verified.set_trouble(
          "the file shard-0-0.safetensors of dataset birds is damaged: add it again");
    }
    return reply;
  }

  storage::NamedManifest shard_;
  bool damaged_ = false;
  std::map<std::string, int> asked_;
};

TEST_F(ChunkTest, ListSaysWhatEachIsAndWhoHoldsIt) {
  add_run();
  add_node();
  EXPECT_EQ(around({"chunk", "list", "birds"}), kExitOk) << around.told();
  EXPECT_THAT(around.printed(), HasSubstr("run birds, expert 0, step 60"));
  EXPECT_EQ(around({"chunk", "list", "birds", "-o", "json"}), kExitOk);
  const Json items = Json::parse(around.printed())["items"];
  ASSERT_EQ(items.size(), 2U);
  EXPECT_EQ(items[0]["object"], blake2b("checkpoint").hex());
  EXPECT_EQ(items[0]["holders"], Json::array({"rented"}));
  EXPECT_EQ(items[0]["step"], 60);
  EXPECT_EQ(items[1]["name"], "shard-0-0.safetensors");
  EXPECT_EQ(items[1]["holders"], Json::array());
  EXPECT_EQ(items[1]["coordinator"], "whole");

  EXPECT_EQ(around({"chunk", "list", "--node", "rented", "-o", "json"}), kExitOk) << around.told();
  EXPECT_EQ(Json::parse(around.printed())["items"].size(), 1U);
  EXPECT_EQ(around({"chunk", "list", "--node", "nobody"}), kExitNotFound);
}

TEST_F(ChunkTest, ListWithoutTheNodesStillLists) {
  around.make_fleet = nullptr;
  EXPECT_EQ(around({"chunk", "list", "birds"}), kExitOk);
  EXPECT_THAT(around.told(), HasSubstr("what the nodes hold is not known"));
  EXPECT_EQ(around({"chunk", "list", "--node", "rented"}), kExitUnreachable);
}

TEST_F(ChunkTest, ListShowsTheChunksOfOneObject) {
  const std::string start = shard_.name.hex().substr(0, 10);
  EXPECT_EQ(around({"chunk", "list", "--object", start, "--chunks", "-o", "json"}), kExitOk)
      << around.told();
  const Json items = Json::parse(around.printed())["items"];
  ASSERT_EQ(items.size(), 1U);
  ASSERT_EQ(items[0]["chunks"].size(), 2U);
  EXPECT_EQ(items[0]["chunks"][1]["chunk"], blake2b("b").hex());
  EXPECT_EQ(items[0]["chunks"][1]["bytes"], 1);
  EXPECT_EQ(around.coordinator.fetched.size(), 1U) << "the manifest alone";
  EXPECT_EQ(around({"chunk", "list", "--object", "00000000"}), kExitNotFound);
  EXPECT_EQ(around({"chunk", "list", "--object", "xyz"}), kExitUsage);
}

TEST_F(ChunkTest, VerifyGoesThroughAllAndTellsWhatIsDamaged) {
  EXPECT_EQ(around({"chunk", "verify", "birds"}), kExitOk) << around.told();
  EXPECT_THAT(around.printed(), HasSubstr("checked 2 objects, 2.0 KiB: all whole"));
  damaged_ = true;
  asked_.clear();
  EXPECT_EQ(around({"chunk", "verify", "-o", "json"}), kExitUnhealthy);
  const Json said = Json::parse(around.printed());
  EXPECT_EQ(said["checked"], 2);
  ASSERT_EQ(said["damaged"].size(), 1U);
  EXPECT_EQ(said["damaged"][0]["object"], shard_.name.hex());
  EXPECT_EQ(said["damaged"][0]["damaged_chunks"], Json::array({blake2b("b").hex()}));
  asked_.clear();
  EXPECT_EQ(around({"chunk", "verify"}), kExitUnhealthy);
  EXPECT_THAT(around.printed(), HasSubstr("1 damaged"));
  EXPECT_THAT(around.printed(), HasSubstr("add it again"));
}

TEST_F(ChunkTest, VerifyPassesOverWhatIsDroppedMeanwhile) {
  around.coordinator.refuse(pb::AdminRequest::kObjectVerify, ErrorCode::kNotFound,
                            "not any longer");
  EXPECT_EQ(around({"chunk", "verify"}), kExitOk);
  EXPECT_THAT(around.printed(), HasSubstr("2 were dropped meanwhile"));
}

TEST_F(FleetTest, AnEnsembleThatTheNodesDoNotHoldWholeIsNotBegun) {
  const TempFolder folder;
  const auto fetch = [&](const std::string& run) {
    return around(
        {"ensemble", "fetch", run, "-o", (folder.path() / "out").string(), "--from", "rented"});
  };
  EXPECT_EQ(fetch("birds"), exit_code(ErrorCode::kNotFound));
  add_run();
  EXPECT_EQ(fetch("birds"), exit_code(ErrorCode::kUnavailable));
  EXPECT_THAT(around.told(), HasSubstr("expert 0: no node says that it holds its checkpoint"));
  add_node();
  EXPECT_EQ(fetch("r-1"), exit_code(ErrorCode::kUnavailable));
  EXPECT_THAT(around.told(), HasSubstr("router: no node says that it holds"));
}

}  // namespace
}  // namespace skerry::cli
