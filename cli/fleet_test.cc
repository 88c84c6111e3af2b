// Commands that ask the nodes themselves, on records that a test has signed.
#include "cli/fleet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/temp_folder.h"
#include "cli/exit_code.h"
#include "cli/output.h"
#include "cli/testing.h"
#include "gossip/testing.h"

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
  const gossip::Table& table() const override { return table_; }
  Now now() const override { return gossip::at({}); }
  Result<void> fetch(const std::vector<WantedObject>&, exchange::Shelf&, const Shown&) override {
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
  EXPECT_EQ(node_address(*table.find_node(node.id(), gossip::at({}))->record), kHost + "#" + key);
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
}

TEST_F(FleetTest, AnEnsembleThatTheNodesDoNotHoldWholeIsNotBegun) {
  const TempFolder folder;
  const auto fetch = [&](const std::string& run) {
    return around({"ensemble", "fetch", run, "-o", (folder.path() / "out").string(), "--from", "rented"});
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
