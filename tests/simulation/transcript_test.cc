// SPDX-License-Identifier: Apache-2.0
// The stories of the protocol, told by the hosts: one line for each message and
// effect that matters. Each is compared with its file in transcripts/.
// SKERRY_UPDATE_TRANSCRIPTS=1 writes the files anew; a commit that changes one
// explains the change.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <stdexcept>

#include "base/text.h"
#include "tests/simulation/cluster.h"
#include "tests/simulation/gossip_enemies.h"
#include "tests/simulation/simulate.h"

namespace skerry::simulation {
namespace {

namespace fs = std::filesystem;

ClusterOptions story(std::vector<std::string> names, std::uint32_t experts, Step steps) {
  ClusterOptions options;
  options.seed = 7;
  options.keep = Trace::Keep::kAll;
  options.steady = true;
  options.experts = experts;
  options.steps = steps;
  options.round_steps = 5;
  for (std::string& name : names)
    options.nodes.push_back({std::move(name), 1, milliseconds(400), 0});
  return options;
}

void expect_as_file(const std::string& name, const std::string& now) {
  const fs::path path = fs::path(SKERRY_TRANSCRIPTS) / (name + ".txt");
  if (std::getenv("SKERRY_UPDATE_TRANSCRIPTS") != nullptr) {
    std::ofstream(path) << now;
    return;
  }
  std::ifstream file(path);
  std::stringstream written;
  written << file.rdbuf();
  EXPECT_EQ(now, written.str()) << name << " has changed: see " << path
                                << "; SKERRY_UPDATE_TRANSCRIPTS=1 writes it anew";
}

class Story : public testing::Test {
 protected:
  void begin(const ClusterOptions& options) {
    cluster_ = std::make_unique<Cluster>(options);
    cluster_->start();
  }
  Cluster& cluster() { return *cluster_; }
  void until(const std::function<bool()>& condition) {
    if (!cluster_->run_until(condition, seconds(120)))
      throw std::runtime_error("the story does not go on:\n" + told());
  }
  void until_done() {
    until([this] {
      const Step target = cluster_->steps_target();
      for (ExpertIndex i = 0; i < cluster_->options().experts; ++i) {
        if (head(i) < target) return false;
      }
      return true;
    });
    cluster_->run_for(seconds(2));
  }
  void ada_commits_then_bob_joins() {
    cluster_->daemon("ada").start(cluster_->token());
    until([&] { return head(0) == 5; });
    cluster_->daemon("bob").start(cluster_->token());
  }
  // What was told so far is left out: the story begins here.
  void chapter() { from_ = cluster_->world().trace.lines().size(); }
  Step head(ExpertIndex expert) { return cluster_->expert(expert).head_step; }

  std::string told() const {
    std::string out;
    const auto& lines = cluster_->world().trace.lines();
    for (std::size_t i = from_; i < lines.size(); ++i) out += lines[i] + "\n";
    return out;
  }

  void expect_as_written(const std::string& name, const std::string& about) {
    for (const Violation& violation : cluster_->invariants().violations())
      ADD_FAILURE() << violation.id << ": " << violation.what;
    expect_as_file(name, about + "\n\n" + told());
  }

 private:
  std::unique_ptr<Cluster> cluster_;
  std::size_t from_ = 0;
};

TEST_F(Story, Join) {
  begin(story({"ada"}, 1, 5));
  cluster().run_for(seconds(5));
  chapter();
  cluster().start_daemons();
  until([&] { return cluster().holder(0) != nullptr && cluster().daemon(0).engine_starts() > 0; });
  expect_as_written("join",
                    "A node joins by a token: its key is enrolled, it says Hello, and is given the "
                    "expert that waits.");
}

TEST_F(Story, GrantAndCommit) {
  begin(story({"ada"}, 1, 10));
  cluster().start_daemons();
  until([&] { return cluster().daemon(0).engine_starts() > 0; });
  chapter();
  until_done();
  expect_as_written(
      "commit",
      "Two rounds. After each the node stores a checkpoint and asks for its commit; the "
      "coordinator pulls "
      "the\nobject, and once it and the new head are durable it says so, under the id that asked.");
}

TEST_F(Story, DuplicateCommit) {
  begin(story({"ada"}, 1, 5));
  cluster().start_daemons();
  until([&] { return cluster().daemon(0).last_commit().has_value(); });
  chapter();
  pb::ControlRequest again;
  again.set_id(1ULL << 60);
  *again.mutable_commit() = *cluster().daemon(0).last_commit();
  until([&] { return head(0) == 5; });
  cluster().daemon(0).forge(again);
  cluster().run_for(milliseconds(100));
  expect_as_written("duplicate_commit",
                    "The same commit twice: applied once, answered twice (S5).");
}

TEST_F(Story, FencedCommit) {
  begin(story({"ada", "bob"}, 1, 60));
  ada_commits_then_bob_joins();
  cluster().run_for(seconds(1));
  chapter();
  Weather& weather = cluster().world().network.weather("ada");
  weather.delay_min = weather.delay_max = seconds(12);
  cluster().run_for(seconds(3));
  weather.delay_min = weather.delay_max = milliseconds(1);
  until([&] { return cluster().holder(0) == &cluster().daemon("bob") && head(0) > 5; });
  cluster().run_for(seconds(3));
  expect_as_written("fenced_commit",
                    "A commit takes 12 s to arrive. Its sender was silent for longer than its "
                    "lease and the grace, so "
                    "the expert is another's\nby then, at the next epoch: the commit is fenced and "
                    "changes nothing "
                    "(S2).");
}

TEST_F(Story, Copies) {
  ClusterOptions options = story({"ada", "bob", "cid"}, 1, 60);
  options.copies = 2;
  begin(options);
  cluster().daemon("ada").start(cluster().token());
  until([&] { return cluster().daemon("ada").engine_starts() > 0; });
  cluster().daemon("bob").start(cluster().token());
  cluster().run_for(seconds(1));
  chapter();
  until([&] { return head(0) == 5; });
  cluster().daemon("cid").start(cluster().token());
  cluster().run_for(milliseconds(500));
  cluster().daemon("ada").kill(DaemonMachine::Death::kVanished);
  const Step before = head(0);
  until([&] { return head(0) > before; });
  expect_as_written(
      "copies",
      "A run asks for two copies. Beside the coordinator a spare is told to hold the "
      "checkpoints: the commit is "
      "accepted once it\nsays that the new one is durable there. When the machine that trained "
      "vanishes, the spare "
      "starts from its own disk, and\nanother is told to hold what it commits.");
}

TEST_F(Story, StoppedDaemon) {
  begin(story({"ada", "bob"}, 1, 60));
  ada_commits_then_bob_joins();
  cluster().run_for(seconds(1));
  chapter();
  cluster().daemon("ada").pause(seconds(13));
  until([&] { return cluster().holder(0) == &cluster().daemon("bob") && head(0) > 5; });
  until([&] { return !cluster().daemon("ada").is_paused(); });
  cluster().run_for(milliseconds(500));
  expect_as_written("stopped_daemon",
                    "A daemon is stopped (SIGSTOP) until another has its expert. When it goes on "
                    "its lease is over by its "
                    "own clock: it\ncommits nothing, learns that it lost the expert, and is ready "
                    "for other work.");
}

TEST_F(Story, SilentDeath) {
  begin(story({"ada", "bob"}, 1, 15));
  ada_commits_then_bob_joins();
  cluster().run_for(seconds(1));
  chapter();
  cluster().daemon("ada").kill(DaemonMachine::Death::kVanished);
  until_done();
  expect_as_written("silent_death",
                    "A machine vanishes without a word: its lease (6 s) and the grace (2 s) run "
                    "out, then a spare goes on "
                    "from the last\ncommit.");
}

TEST_F(Story, KilledNode) {
  begin(story({"ada", "bob"}, 1, 60));
  ada_commits_then_bob_joins();
  cluster().run_for(seconds(8));
  chapter();
  const Step before = head(0);
  cluster().daemon("ada").kill(DaemonMachine::Death::kKilled);
  until([&] { return head(0) > before; });
  expect_as_written("killed_node",
                    "A daemon is killed (SIGKILL): its connection closes, and a second later a "
                    "spare has its expert.");
}

TEST_F(Story, CoordinatorRestart) {
  begin(story({"ada"}, 1, 60));
  cluster().start_daemons();
  until([&] { return head(0) == 10; });
  chapter();
  cluster().coordinator().kill();
  cluster().run_for(seconds(3));
  cluster().coordinator().start();
  until([&] { return head(0) > 20; });
  expect_as_written(
      "coordinator_restart",
      "The coordinator is killed and comes back 3 s later. The node trains on, offers its work "
      "again in "
      "Hello, and commits\nthe longer span under the same epoch: nothing is lost (L4).");
}

TEST_F(Story, LapsedLeaseOverARestart) {
  begin(story({"ada", "bob"}, 1, 60));
  cluster().daemon("ada").start(cluster().token());
  until([&] { return head(0) == 5; });
  cluster().run_for(seconds(8));
  const Step before = head(0);
  chapter();
  cluster().daemon("ada").kill(DaemonMachine::Death::kKilled);
  cluster().run_for(seconds(2));
  cluster().coordinator().kill();
  cluster().coordinator().start();
  cluster().daemon("bob").start(cluster().token());
  until([&] { return head(0) > before; });
  expect_as_written("lapsed_lease_over_a_restart",
                    "A lease has lapsed and nobody was free to take its expert when the "
                    "coordinator is killed. The lease "
                    "lapses again\nafter the recovery window, and a node that joined meanwhile "
                    "goes on (found by seed "
                    "776).");
}

TEST_F(Story, DamagedCheckpoint) {
  begin(story({"ada"}, 1, 60));
  cluster().start_daemons();
  until([&] { return head(0) == 5; });
  cluster().world().network.transfers_fail = 1;
  until([&] { return cluster().daemon(0).last_commit()->to_step() == 10; });
  chapter();
  ASSERT_TRUE(cluster().daemon(0).lose_object(
      *Hash::from_raw(cluster().daemon(0).last_commit()->manifest().manifest())));
  cluster().world().network.transfers_fail = 0;
  until([&] { return head(0) > 5; });
  cluster().run_for(milliseconds(200));
  expect_as_written("damaged_checkpoint",
                    "A checkpoint is damaged on its node's disk before the coordinator has fetched "
                    "it. The node finds out "
                    "while it serves it,\nforgets it, and commits the longer span with its next "
                    "one: the engine still "
                    "has every step (found by seed 585).");
}

TEST_F(Story, Drain) {
  begin(story({"ada", "bob"}, 1, 15));
  ada_commits_then_bob_joins();
  cluster().run_for(milliseconds(200));
  chapter();
  cluster().daemon("ada").drain();
  until_done();
  expect_as_written("drain",
                    "A daemon is told to leave (SIGTERM): it snapshots where it stands, commits, "
                    "gives the lease back and "
                    "ends; the next\nnode loses no step.");
}

TEST_F(Story, Turns) {
  ClusterOptions options = story({"ada"}, 2, 10);
  options.turn_rounds = 1;
  begin(options);
  cluster().start_daemons();
  until([&] { return cluster().holder(0) != nullptr || cluster().holder(1) != nullptr; });
  chapter();
  until_done();
  expect_as_written(
      "turns",
      "One node, two experts: they take turns, the one with the most left first. A turn "
      "ends at a commit.");
}

TEST_F(Story, RevokedKey) {
  begin(story({"ada"}, 1, 40));
  cluster().start_daemons();
  until([&] { return head(0) == 5; });
  chapter();
  const std::string key = cluster().daemon(0).identity().x25519_key;
  cluster().ask_named(
      [](pb::AdminRequest& r, const std::string& name) { r.mutable_node_revoke()->set_name(name); },
      "ada", [&](const pb::ControlReply&) { cluster().invariants().revocation_acknowledged(key); });
  cluster().run_for(seconds(3));
  expect_as_written("revoked_key",
                    "A node's key is revoked: its connection ends and it is let in no more (S14).");
}

TEST_F(Story, SpentToken) {
  begin(story({"ada", "bob"}, 1, 40));
  cluster().run_for(seconds(2));
  chapter();
  std::optional<pb::TokenCreated> token;
  pb::AdminRequest request;
  request.mutable_token_create()->set_role(pb::ROLE_NODE);
  request.mutable_token_create()->set_uses(1);
  request.mutable_token_create()->set_ttl_seconds(3600);
  cluster().admin().ask(
      request, [&](const pb::ControlReply& reply) { token = reply.admin().token_created(); });
  until([&] { return token.has_value(); });
  Network& network = cluster().world().network;
  const std::string key = cluster().daemon("ada").identity().x25519_key;
  cluster().daemon("ada").start(*token);
  until([&] { return cluster().coordinator().core()->node_of_key(key).has_value(); });
  network.weather("ada").to_client_cut = true;
  cluster().run_for(seconds(1));
  network.weather("ada").to_client_cut = false;
  until([&] { return cluster().daemon("ada").core() != nullptr; });
  cluster().daemon("bob").start(*token);
  cluster().run_for(seconds(1));
  EXPECT_FALSE(cluster().daemon("bob").is_enrolled());
  expect_as_written(
      "spent_token",
      "A token of one use. The answer to the first node is lost; it asks again, gets the same "
      "certificate, and "
      "that is no\nsecond use. Another node is refused, and told what to do (S13).");
}

ClusterOptions story_of_records(std::vector<std::string> names) {
  ClusterOptions options = story(std::move(names), 1, 200);
  options.tells_records = true;
  return options;
}

TEST_F(Story, RecordSuperseded) {
  ClusterOptions options = story_of_records({"ada", "bob", "cid"});
  options.nodes[2].listens = false;
  begin(options);
  cluster().daemon("ada").start(cluster().token());
  until([&] { return head(0) == 5; });
  cluster().daemon("bob").start(cluster().token());
  cluster().daemon("cid").start(cluster().token());
  const auto learnt = [&](const std::string& node) -> Step {
    const DaemonMachine& daemon = cluster().daemon(node);
    if (daemon.records() == nullptr) return 0;
    const gossip::Key key{
        gossip::Kind::kExpert, cluster().daemon("ada").id(), cluster().expert(0).id.run, 0, {}};
    const gossip::Entry* entry = daemon.records()->find(key, daemon.now());
    return entry == nullptr ? 0 : entry->record->body.expert().step();
  };
  until([&] { return learnt("bob") > 0 && learnt("cid") > 0; });
  chapter();
  const Step before = std::max(learnt("bob"), learnt("cid"));
  until([&] { return learnt("bob") > before && learnt("cid") > before; });
  expect_as_written(
      "record_superseded",
      "A node that trains signs what it has, anew when that changes but not more "
      "often than every twenty "
      "seconds here. The record\ngoes from node to node, over connections of either side (cid is "
      "behind NAT), and each lets "
      "the "
      "older version go (S10, S11).");
}

TEST_F(Story, RevokedRecord) {
  begin(story_of_records({"ada", "bob"}));
  cluster().start_daemons();
  until([&] { return head(0) == 5; });
  DaemonMachine& ada = *cluster().holder(0);
  DaemonMachine& other =
      &ada == &cluster().daemon("ada") ? cluster().daemon("bob") : cluster().daemon("ada");
  cluster().run_for(seconds(30));
  chapter();
  GossipEnemies enemies(cluster());
  enemies.key_was_revoked(ada.identity(), ada.certificate());
  cluster().ask_named(
      [](pb::AdminRequest& r, const std::string& name) { r.mutable_node_revoke()->set_name(name); },
      ada.id().str(),
      [&](const pb::ControlReply&) {
        cluster().invariants().revocation_acknowledged(ada.identity().x25519_key);
      });
  until([&] { return other.records()->is_revoked(ada.id(), other.now()); });
  ada.kill(DaemonMachine::Death::kKilled);
  cluster().run_for(seconds(1));
  Dice dice(7, "story");
  ASSERT_TRUE(enemies.revoked_record(dice));
  cluster().run_for(milliseconds(100));
  expect_as_written(
      "revoked_record",
      "A node's key is revoked. The revocation is a record of the coordinator's: who learns it "
      "lets go of what "
      "the node said. Its\nkey is still in somebody's hands, who signs a record as new as can "
      "be and hands it "
      "on: it is refused (S10).");
}

// Not a story, but known in the same way: what debug and release builds must
// both come to, on every machine.
TEST(Hashes, S17EveryBuildComesToTheSame) {
  std::string now =
      "The trace hashes of whole simulations by seed, the same in every build (S17).\n\n";
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    char line[32];
    std::snprintf(line, sizeof line, "%2llu  %016llx\n", static_cast<unsigned long long>(seed),
                  static_cast<unsigned long long>(simulate({.seed = seed}).trace_hash));
    now += line;
  }
  expect_as_file("hashes", now);
}

}  // namespace
}  // namespace skerry::simulation
