// SPDX-License-Identifier: Apache-2.0
// After a restore: revocations come back before anybody is answered (S14), keys
// by their certificates, and runs from records.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/testing/testing.h"

namespace skerry::coordinator {
namespace {

using testing::expert;
using testing::Harness;
using ::testing::HasSubstr;
using testing::held_by;
using testing::Who;

pb::AdminReply named(Harness& harness, pb::Named* (pb::AdminRequest::*part)(),
                     const std::string& name) {
  return harness.admin_ask([&](pb::AdminRequest& request) { (request.*part)()->set_name(name); });
}

std::vector<pb::RunInfo> listed(Harness& harness) {
  const pb::AdminReply reply =
      harness.admin_ask([](pb::AdminRequest& request) { request.mutable_run_list(); });
  return {reply.runs().runs().begin(), reply.runs().runs().end()};
}

TEST(Recall, ARevocationSinceTheBackupHoldsBeforeAnybodyIsAnswered) {
  Harness harness;
  Who bad = harness.join("bad");
  Who one = harness.join("one");
  Who two = harness.join("two");
  harness.create_run("fashion", 1);
  const auto backup = harness.disk;
  named(harness, &pb::AdminRequest::mutable_node_revoke, "bad");
  harness.begin_restore(backup);

  for (Who* node : {&bad, &one, &harness.admin}) {
    node->connection.clear();
    EXPECT_EQ(harness.hello(*node).error().code(), "unavailable");
  }
  EXPECT_FALSE(harness.core().may_read(bad.id, *Hash::from_raw(blake2b("any").raw())));
  harness.step(RecordsReceived{{bad.id}, {one.id}, {}});
  EXPECT_EQ(harness.hello(one).error().code(), "unavailable") << "one of two is not more than half";
  harness.restart();
  EXPECT_EQ(harness.hello(one).error().code(), "unavailable") << "it goes on asking after a start";
  harness.step(RecordsReceived{{bad.id}, {one.id, two.id}, {}});
  harness.reconnect(one);
  EXPECT_TRUE(held_by(harness, one));
  bad.connection.clear();
  EXPECT_EQ(harness.hello(bad).error().code(), "unauthorised");
  ASSERT_EQ(harness.events("revoked").size(), 1U);
  EXPECT_THAT(harness.events("revoked")[0].reason(), HasSubstr("a record of this coordinator"));
}

TEST(Recall, ANodeThatWasRevokedSinceDoesNotEndItByItself) {
  Harness harness;
  Who bad = harness.join("bad");
  const auto backup = harness.disk;
  Who late = testing::make_who("late");
  const pb::Certificate certificate = harness.enrol(late, harness.first.token).certificate();
  named(harness, &pb::AdminRequest::mutable_node_revoke, "bad");
  harness.config.recall_least = std::chrono::seconds(6);
  harness.begin_restore(backup);
  harness.step(RecordsReceived{{}, {bad.id}, {}});
  bad.connection.clear();
  EXPECT_EQ(harness.hello(bad).error().code(), "unavailable")
      << "the only node that the backup knows";
  harness.readmit(late, certificate);
  harness.step(RecordsReceived{{bad.id}, {bad.id, late.id}, {}});
  harness.run_for(harness.config.recall_limit);
  EXPECT_EQ(harness.hello(bad).error().code(), "unauthorised");
}

TEST(Recall, ANodeSaysWhichGenerationItHasSeenBeforeAnythingIsGranted) {
  Harness harness;
  Who node = harness.join("n1");
  Who later = harness.join("n2");
  harness.create_run("fashion", 1);
  harness.begin_restore(std::map(harness.disk));
  later.generation = 7;
  later.connection.clear();
  EXPECT_EQ(harness.hello(later).error().code(), "unavailable");
  harness.step(RecordsReceived{{}, {node.id, later.id}, {}});
  harness.reconnect(node);
  EXPECT_EQ(Epoch(harness.assignment(node).slots(0).epoch()).generation(), 8U);
}

TEST(Recall, EverybodyIsAnsweredOnceTheTimeHasPassed) {
  Harness harness;
  Who one = harness.join("one");
  harness.begin_restore(std::map(harness.disk));
  harness.run_for(harness.config.recall_limit - std::chrono::seconds(1));
  EXPECT_TRUE(harness.core().recalls());
  harness.run_for(std::chrono::seconds(2));
  EXPECT_FALSE(harness.core().recalls());
  harness.reconnect(one);
  EXPECT_EQ(harness.hello(one).hello().name(), "one");
}

TEST(Recall, AKeyThatEnrolledSinceTheBackupComesBackByItsCertificate) {
  Harness harness;
  const auto backup = harness.disk;
  Who late = testing::make_who("late");
  Who bad = testing::make_who("bad");
  const pb::Certificate certificate = harness.enrol(late, harness.first.token).certificate();
  const pb::Certificate of_bad = harness.enrol(bad, harness.first.token).certificate();
  harness.begin_restore(backup);
  EXPECT_FALSE(harness.core().node_of_key(late.key));
  EXPECT_EQ(harness.readmit(late, certificate).error().code(), "unavailable");
  EXPECT_EQ(harness.readmit(bad, of_bad).error().code(), "unavailable");
  EXPECT_TRUE(harness.core().node_of_key(late.key)) << "its records are accepted";
  late.incarnation = bad.incarnation = 7;
  EXPECT_EQ(harness.hello(late).error().code(), "unavailable");

  harness.step(RecordsReceived{{bad.id}, {late.id}, {}});
  EXPECT_FALSE(harness.core().node_of_key(bad.key));
  harness.run_for(harness.config.recall_limit);
  EXPECT_EQ(harness.hello(late).hello().name(), "late");
  EXPECT_EQ(harness.events("readmitted").size(), 1U);
  harness.restart();
  EXPECT_THAT(harness.readmit(bad, of_bad).error().message(), HasSubstr("revoked"));
  EXPECT_THAT(harness.enrol(bad, harness.first.token).error().message(), HasSubstr("revoked"));
  const std::vector<NodeId> revoked = harness.core().revoked();
  EXPECT_EQ(revoked, std::vector<NodeId>{bad.id}) << "it is told on";
}

TEST(Recall, ACertificateIsWorthNothingForAnotherKeyOrOfAnotherCoordinator) {
  Harness harness;
  const auto backup = harness.disk;
  const Who late = testing::make_who("late");
  pb::Certificate certificate = harness.enrol(late, harness.first.token).certificate();
  harness.restore(backup);
  EXPECT_THAT(harness.readmit(testing::make_who("thief"), certificate).error().message(),
              HasSubstr("another"));
  certificate.set_signature("signed by somebody else");
  EXPECT_THAT(harness.readmit(late, certificate).error().message(), HasSubstr("another"));
}

TEST(Recall, JoinTokensOfABackupHaveExpired) {
  Harness harness;
  const auto backup = harness.disk;
  harness.restore(backup);
  EXPECT_THAT(harness.enrol(testing::make_who("n"), harness.first.token).error().message(),
              HasSubstr("expired"));
  std::vector<KeyValue> state;
  for (const auto& [key, value] : backup) state.push_back({key, value});
  const auto kept = Core::restored(state, harness.now.unix_ms, Core::Tokens::kKeep);
  ASSERT_TRUE(kept);
  harness.disk.clear();
  for (const KeyValue& entry : *kept) harness.disk[entry.key] = entry.value;
  harness.restart();
  harness.run_for(harness.config.recall_limit + std::chrono::seconds(1));
  EXPECT_FALSE(harness.enrol(testing::make_who("n"), harness.first.token).has_error());
}

TEST(Recall, AFreshStoreGoesOnUnderTheOldIdentityWithLaterEpochs) {
  Harness harness;
  Who node = testing::make_who("n1");
  const pb::Certificate certificate = harness.enrol(node, harness.first.token).certificate();
  harness.disk.clear();
  for (const KeyValue& entry : Core::fresh(harness.now.unix_ms))
    harness.disk[entry.key] = entry.value;
  harness.restart();
  EXPECT_TRUE(harness.core().recalls());
  EXPECT_EQ(harness.readmit(node, certificate).error().code(), "unavailable");
  harness.run_for(harness.config.recall_limit);
  node.incarnation = 5;
  EXPECT_EQ(harness.hello(node).hello().generation(), 2U);
  harness.create_run("fashion", 1);
  EXPECT_GE(expert(harness).epoch.counter(), static_cast<std::uint64_t>(1'700'000'000'000));
}

// ---- Runs ----

class Orphans : public ::testing::Test {
 protected:
  Orphans() : backup(harness.disk) {
    node = testing::make_who("n1");
    certificate = harness.enrol(node, harness.first.token).certificate();
    node.incarnation = 5;
    harness.hello(node);
    id = harness.create_run("fashion", 1);
    harness.commit_round(node);
    harness.commit_round(node);
    facts = harness.core().run_facts().at(0);
    const std::string bytes = facts.about.SerializeAsString();
    specification = blake2b(bytes);
    about.set_run(id);
    about.set_name("fashion");
    about.set_dataset("data");
    about.set_experts(1);
    about.mutable_spec()->set_manifest(specification.raw());
    about.mutable_spec()->set_manifest_bytes(100);
    about.mutable_spec()->set_bytes(bytes.size());
    heads = {{facts.experts[0], node.id, true}};
    head = *Hash::from_raw(facts.experts[0].checkpoint().manifest());
    before = expert(harness).epoch;
    held = harness.objects;
    harness.objects.clear();
    harness.restore(backup);
    harness.readmit(node, certificate);
    harness.hello(node);
  }
  void hear() { harness.step(RecordsReceived{{}, {}, {about}}); }
  pb::RunAdoptReply adopt(bool partial = false) {
    harness.fetches.clear();
    harness.reads.clear();
    const pb::AdminReply reply = harness.admin_ask([&](pb::AdminRequest& request) {
      request.mutable_run_adopt()->set_run("fashion");
      request.mutable_run_adopt()->set_partial(partial);
    });
    if (!harness.seeks.empty()) {
      harness.seeks.clear();
      harness.step(RunRecords{RunId(id), heads});
    }
    return reply.adopted();
  }
  // Asks as often as an adoption takes where nodes give back all but these.
  pb::RunAdoptReply adopt_without(const std::set<Hash>& but, bool partial = false) {
    hear();
    adopt();
    give_back(but);
    adopt();
    harness.step(FileRead{specification, facts.about.SerializeAsString()});
    harness.run_for(harness.config.adoption_pause, [&] { harness.heartbeat(node); });
    for (int i = 0; i < 4; ++i) give_back(but);  // a lie makes room for the next
    return adopt(partial);
  }
  // A node's own record; `made` changes what the bytes say of themselves.
  Hash claim(Step step, const std::function<void(ObjectFacts&)>& made = {}) {
    ObjectStored object = held.at(head);
    object.manifest = blake2b(text("of a node, step ", step));
    object.facts.step = step;
    object.facts.parent = head;
    if (made) made(object.facts);
    held[object.manifest] = object;
    heads.push_back({facts.experts[0], node.id, false});
    RunRecords::Head& said = heads.back();
    said.record.set_step(step);
    said.record.mutable_checkpoint()->set_manifest(object.manifest.raw());
    return object.manifest;
  }
  // What nodes hold comes, of what is asked for.
  void give_back(const std::set<Hash>& but = {}) {
    for (const Hash& object : harness.core().lost_objects()) {
      if (but.contains(object)) continue;
      harness.step(HeldElsewhere{object, {node.id}});
      if (object == specification) {
        harness.store({object, 100, about.spec().bytes(), false, {.name = "run.pb"}});
      } else {
        harness.store(held.at(object));
      }
    }
  }

  Harness harness;
  std::map<std::string, std::string> backup;
  Who node;
  pb::Certificate certificate;
  std::string id;
  RunFacts facts;
  std::vector<RunRecords::Head> heads;
  pb::RunRecord about;
  Hash specification, head;
  Epoch before;
  std::map<Hash, ObjectStored> held;
};

TEST_F(Orphans, AreListedToldOnceAndLeftAlone) {
  EXPECT_TRUE(listed(harness).empty());
  hear();
  hear();
  ASSERT_EQ(listed(harness).size(), 1U);
  EXPECT_EQ(listed(harness)[0].state(), "orphan");
  EXPECT_EQ(listed(harness)[0].id(), id);
  EXPECT_EQ(harness.events("run_orphaned").size(), 1U);
  EXPECT_TRUE(harness.core().deleted_runs().empty()) << "nothing is withdrawn";
  named(harness, &pb::AdminRequest::mutable_run_show, "fashion");
  EXPECT_THAT(harness.last_error.message(), HasSubstr("skerry run adopt fashion"));
}

TEST_F(Orphans, NoNewRunTakesTheNameOfOne) {
  hear();
  harness.add_dataset("data", 2);  // so that nothing else is wrong
  EXPECT_EQ(harness.create_run("fashion", 2), "");
  EXPECT_THAT(harness.last_error.message(), HasSubstr("skerry run adopt fashion"));
}

TEST_F(Orphans, OnlyAPersonWithdrawsOneAndThatLasts) {
  hear();
  named(harness, &pb::AdminRequest::mutable_run_delete, "fashion");
  EXPECT_EQ(harness.core().deleted_runs(), std::set<RunId>{RunId(id)});
  EXPECT_TRUE(listed(harness).empty());
  harness.restart();
  EXPECT_EQ(harness.core().deleted_runs(), std::set<RunId>{RunId(id)});
  hear();
  EXPECT_TRUE(listed(harness).empty()) << "an older record of it turned up";
  harness.now.unix_ms += harness.config.deleted_run_age / std::chrono::milliseconds(1) + 1;
  harness.restart();
  EXPECT_TRUE(harness.core().deleted_runs().empty()) << "no record of it lives any more";
}

TEST_F(Orphans, AreAdoptedWithTheirDatasetAndHeads) {
  hear();
  EXPECT_FALSE(adopt().done());
  EXPECT_EQ(adopt().missing_size(), 2) << "specification and head are asked for";
  give_back();
  EXPECT_FALSE(adopt().done());
  ASSERT_EQ(harness.reads, std::vector<Hash>{specification});
  harness.step(FileRead{specification, facts.about.SerializeAsString()});
  EXPECT_FALSE(adopt().done()) << "records of other nodes may still come";
  harness.run_for(harness.config.adoption_pause, [&] { harness.heartbeat(node); });
  const pb::RunAdoptReply adopted = adopt();
  ASSERT_TRUE(adopted.done());
  EXPECT_EQ(adopted.run().id(), id);

  EXPECT_EQ(listed(harness).at(0).state(), "running");
  EXPECT_EQ(expert(harness).head, head);
  EXPECT_EQ(expert(harness).head_step, 20U);
  EXPECT_GT(expert(harness).epoch, before);
  EXPECT_TRUE(held_by(harness, node));
  EXPECT_EQ(harness.assignment(node).slots(0).head().manifest(), head.raw());
  // The dataset's files come after; until then the run trains on, and says what
  // lacks.
  const pb::AdminReply why = named(harness, &pb::AdminRequest::mutable_run_why, "fashion");
  EXPECT_THAT(why.why().SerializeAsString(), HasSubstr("skerry dataset add data"));
  EXPECT_EQ(harness.commit_round(node).status(), pb::COMMIT_ACCEPTED);
  harness.restart();
  give_back();
  EXPECT_EQ(harness.events("dataset_ready").size(), 1U);
  EXPECT_EQ(expert(harness).head_step, 30U);
  EXPECT_TRUE(adopt().done()) << "the same question again";
}

TEST_F(Orphans, WhatNobodyHoldsIsNamedAndDoneWithoutOnlyIfAsked) {
  hear();
  adopt();
  give_back({head});
  adopt();
  harness.step(FileRead{specification, facts.about.SerializeAsString()});
  harness.run_for(harness.config.adoption_pause);
  const pb::RunAdoptReply waits = adopt();
  EXPECT_FALSE(waits.done());
  ASSERT_EQ(waits.missing_size(), 1);
  EXPECT_THAT(waits.missing(0), HasSubstr("expert 0's checkpoint of step 20"));
  const pb::RunAdoptReply without = adopt(true);
  EXPECT_TRUE(without.done());
  EXPECT_EQ(without.missing_size(), 1);
  EXPECT_EQ(expert(harness).head_step, 0U);
  EXPECT_GT(expert(harness).epoch, before);
}

TEST_F(Orphans, GoOnFromAnOlderHeadThanTheAcknowledgedOnlyIfAsked) {
  claim(10, [](ObjectFacts& made) { made.parent.reset(); });
  const pb::RunAdoptReply waits = adopt_without({head});
  EXPECT_FALSE(waits.done());
  ASSERT_EQ(waits.missing_size(), 1);
  EXPECT_THAT(waits.missing(0), HasSubstr("expert 0's checkpoint of step 20"));
  EXPECT_THAT(waits.missing(0), HasSubstr("with --partial it goes on from step 10"));
  const pb::RunAdoptReply without = adopt(true);
  ASSERT_TRUE(without.done());
  EXPECT_EQ(without.missing_size(), 1);
  EXPECT_EQ(expert(harness).head_step, 10U);
  ASSERT_EQ(harness.events("head_adopted").size(), 1U);
  EXPECT_THAT(harness.events("head_adopted")[0].reason(), HasSubstr("acknowledge step 20"));
}

TEST_F(Orphans, TakeTheAcknowledgedHeadBeforeAnOlderOne) {
  const Hash older = claim(10);
  ASSERT_TRUE(adopt_without({older}).done());
  EXPECT_EQ(expert(harness).head, head);
  EXPECT_TRUE(harness.events("head_adopted").empty());
}

// Its commit may have been acknowledged just before the loss, so that no record
// of the coordinator tells of it.
TEST_F(Orphans, TakeALaterHeadThatANodeGivesBackWhole) {
  const Hash later = claim(30);
  EXPECT_FALSE(adopt_without({later}).done()) << "the acknowledged one is here, a later one is not";
  give_back();
  const pb::RunAdoptReply adopted = adopt();
  ASSERT_TRUE(adopted.done());
  EXPECT_EQ(adopted.missing_size(), 0);
  EXPECT_EQ(expert(harness).head, later);
  ASSERT_EQ(harness.events("head_adopted").size(), 1U);
  EXPECT_EQ(harness.events("head_adopted")[0].node(), "n1");
  harness.run_for(harness.config.unclaimed_objects + std::chrono::minutes(1),
                  [&] { harness.heartbeat(node); });
  EXPECT_TRUE(harness.objects.contains(later));
  EXPECT_FALSE(harness.objects.contains(head)) << "what nothing names does not stay";
}

TEST_F(Orphans, NameALaterHeadThatNobodyGivesBack) {
  const Hash later = claim(30);
  const pb::RunAdoptReply waits = adopt_without({later});
  EXPECT_FALSE(waits.done());
  ASSERT_EQ(waits.missing_size(), 1);
  EXPECT_THAT(waits.missing(0), HasSubstr("step 30, as n1 says"));
  EXPECT_TRUE(adopt(true).done());
  EXPECT_EQ(expert(harness).head, head);
}

TEST_F(Orphans, PassOverALaterHeadWhoseBytesDoNotFollowOnTheAcknowledged) {
  claim(31, [](ObjectFacts& made) { made.run = RunId("r-of another"); });
  claim(32, [](ObjectFacts& made) { made.expert = 1; });
  claim(33, [](ObjectFacts& made) { made.step = 34; });
  claim(35, [](ObjectFacts& made) { made.parent.reset(); });
  claim(36, [](ObjectFacts& made) { made.epoch = Epoch(made.epoch.value() - 1); });
  claim(37, [](ObjectFacts& made) { made.epoch = Epoch(60'000, 1); });
  claim(1000);  // beyond the run's last step
  claim(38);
  heads.back().record.set_epoch(facts.experts[0].epoch() - 1);
  const Hash older = claim(10);
  harness.store(held.at(older));
  claim(39, [&](ObjectFacts& made) { made.parent = older; });
  const pb::RunAdoptReply adopted = adopt_without({});
  ASSERT_TRUE(adopted.done()) << adopted.DebugString();
  EXPECT_EQ(adopted.missing_size(), 0);
  EXPECT_EQ(expert(harness).head, head);
  EXPECT_TRUE(harness.events("head_adopted").empty());
  harness.run_for(harness.config.unclaimed_objects + std::chrono::minutes(1),
                  [&] { harness.heartbeat(node); });
  const auto is_checkpoint = [](const auto& object) { return object.second.checkpoint; };
  EXPECT_EQ(std::ranges::count_if(harness.objects, is_checkpoint), 1)
      << "lies do not stay on the disk";
}

// A lie costs the bytes of a few objects, and keeps nobody from the checkpoint
// that was acknowledged.
TEST_F(Orphans, AskForAFewOfTheHeadsThatNodesSay) {
  hear();
  adopt();
  for (Step step = 21; step < 60; ++step) claim(step);
  adopt();
  const std::vector<Hash> lost = harness.core().lost_objects();
  EXPECT_LE(lost.size(), 6U);
  EXPECT_EQ(std::ranges::count(lost, head), 1);
}

// No record of the coordinator lives: the best of what nodes say.
TEST_F(Orphans, GoOnByWordsOfNodesAloneWhereTheCoordinatorsRecordIsGone) {
  heads.clear();
  const Hash best = claim(50);
  claim(40);
  ASSERT_TRUE(adopt_without({}).done());
  EXPECT_EQ(expert(harness).head, best);
}

TEST_F(Orphans, AnotherRunOfTheNameStandsInTheWay) {
  harness.add_dataset("data", 1);
  harness.create_run("fashion", 1);
  hear();
  adopt();
  EXPECT_THAT(harness.last_error.message(), HasSubstr("exists"));
  EXPECT_EQ(listed(harness).size(), 2U);
}

}  // namespace
}  // namespace skerry::coordinator
