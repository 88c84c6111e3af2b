// SPDX-License-Identifier: Apache-2.0
// What people ask about objects, and what nodes tell of those that they
// fetched.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/text.h"
#include "coordinator/testing/testing.h"

namespace skerry::coordinator {
namespace {

using ::testing::ElementsAre;
using testing::Harness;
using ::testing::HasSubstr;
using testing::Who;

class ObjectTest : public ::testing::Test {
 protected:
  ObjectTest() {
    harness.create_run("fashion", 2);
    node = harness.join("anna");
    EXPECT_EQ(harness.commit_round(node).status(), pb::COMMIT_ACCEPTED);
    head = *expert(harness, harness.assignment(node).slots(0).expert()).head;
  }
  pb::ObjectListReply list(const std::string& run, const std::string& after = "",
                           std::uint32_t limit = 0) {
    return harness
        .admin_ask([&](pb::AdminRequest& request) {
          request.mutable_object_list()->set_run(run);
          request.mutable_object_list()->set_after(after);
          request.mutable_object_list()->set_limit(limit);
        })
        .objects();
  }
  std::vector<pb::ObjectInfo> objects() {
    const pb::ObjectListReply all = list("");
    return {all.objects().begin(), all.objects().end()};
  }
  pb::ObjectVerifyReply verify(const Hash& manifest) {
    return harness
        .admin_ask([&](pb::AdminRequest& request) {
          request.mutable_object_verify()->set_manifest(manifest.raw());
        })
        .verified();
  }
  void tell_transfer(const std::string& manifest, const std::string& from) {
    pb::ControlRequest request;
    auto& beat = *request.mutable_heartbeat();
    beat.set_incarnation(node.incarnation);
    beat.set_sequence(++node.sequence);
    pb::Transfer& transfer = *beat.add_transfers();
    transfer.set_manifest(manifest);
    transfer.set_bytes(8 << 20);
    transfer.set_millis(2000);
    transfer.add_sources()->set_peer(from);
    harness.ask(node, std::move(request));
  }

  Harness harness;
  Who node;
  Hash head;
};

TEST_F(ObjectTest, ListNamesCheckpointsAndFilesWithTheirState) {
  const pb::ObjectListReply all = list("fashion");
  ASSERT_EQ(all.objects_size(), 6);  // a head; two shards, two partitions, the router
  EXPECT_TRUE(all.next().empty());
  int checkpoints = 0;
  for (const pb::ObjectInfo& info : all.objects()) {
    EXPECT_EQ(info.state(), "whole");
    if (info.kind() != "checkpoint") continue;
    ++checkpoints;
    EXPECT_EQ(info.run(), "fashion");
    EXPECT_EQ(info.step(), 10U);
    EXPECT_EQ(info.object().manifest(), head.raw());
  }
  EXPECT_EQ(checkpoints, 1);
  EXPECT_EQ(list("").objects_size(), 6);
  harness.step(ObjectDamaged{head});
  for (const pb::ObjectInfo& info : objects())
    EXPECT_EQ(info.state(), info.kind() == "checkpoint" ? "damaged" : "whole");
  list("other");
  EXPECT_EQ(harness.last_error.code(), "not_found");
}

TEST_F(ObjectTest, ListComesInPages) {
  std::set<std::string> seen;
  std::string after;
  do {
    const pb::ObjectListReply page = list("", after, 4);
    for (const pb::ObjectInfo& info : page.objects())
      EXPECT_TRUE(seen.insert(info.object().manifest()).second);
    after = page.next();
  } while (!after.empty());
  EXPECT_EQ(seen.size(), 6U);
}

TEST_F(ObjectTest, VerificationIsAskedOfTheDiskOnceAndToldAsItGoes) {
  EXPECT_FALSE(verify(head).done());
  EXPECT_THAT(harness.verifies, ElementsAre(head));
  harness.step(ObjectChecked{.manifest = head, .bytes = 2000, .chunks = 2});
  EXPECT_EQ(verify(head).checked_bytes(), 2000U);
  EXPECT_THAT(harness.verifies, ElementsAre(head));
  harness.step(ObjectChecked{.manifest = head, .bytes = 5000, .chunks = 5, .done = true});
  const pb::ObjectVerifyReply whole = verify(head);
  EXPECT_TRUE(whole.done());
  EXPECT_EQ(whole.chunks(), 5U);
  EXPECT_TRUE(whole.trouble().empty());
  EXPECT_FALSE(verify(head).done()) << "asked anew, it is looked at anew";
  EXPECT_THAT(harness.verifies, ElementsAre(head, head));
}

TEST_F(ObjectTest, WhatIsFoundDamagedIsToldWithWhatMendsIt) {
  verify(head);
  harness.step(ObjectDamaged{head});
  harness.step(ObjectChecked{
      .manifest = head, .bytes = 5000, .chunks = 5, .done = true, .damaged = {blake2b("x")}});
  const pb::ObjectVerifyReply said = verify(head);
  EXPECT_TRUE(said.done());
  EXPECT_THAT(said.damaged(), ElementsAre(blake2b("x").raw()));
  EXPECT_THAT(said.trouble(), HasSubstr("restore a backup"));
  EXPECT_EQ(harness.events("object_damaged").size(), 1U);
  EXPECT_TRUE(verify(head).done()) << "known without looking";
  verify(blake2b("nobody's"));
  EXPECT_EQ(harness.last_error.code(), "not_found");
}

// As it was when the disk was looked at: by the next question a node may have
// given it back.
TEST_F(ObjectTest, TheVerdictStandsThoughItIsMendedMeanwhile) {
  verify(head);
  harness.step(ObjectDamaged{head});
  harness.step(ObjectChecked{.manifest = head, .done = true, .damaged = {blake2b("x")}});
  harness.step(ObjectStored{head, 100, 1000, true, {}});
  EXPECT_THAT(verify(head).trouble(), HasSubstr("is damaged"));
}

TEST_F(ObjectTest, WhatIsLostIsAskedOfTheNodesThatSayTheyHoldIt) {
  const NodeId ada(std::string(32, 'a')), bob(std::string(32, 'b'));
  harness.fetches.clear();
  harness.step(HeldElsewhere{head, {ada}});
  EXPECT_TRUE(harness.fetches.empty()) << "it is whole";
  std::vector<pb::ObjectInfo> lost;
  for (const pb::ObjectInfo& info : objects()) {
    if (info.kind() == "checkpoint" || info.kind() == "router") lost.push_back(info);
  }
  ASSERT_EQ(lost.size(), 2U);
  for (const pb::ObjectInfo& info : lost) {
    const Hash name = *Hash::from_raw(info.object().manifest());
    harness.objects.erase(name);
    harness.step(ObjectDamaged{name});
    EXPECT_THAT(harness.core().lost_objects(), ElementsAre(name));
    harness.fetches.clear();
    harness.step(HeldElsewhere{name, {ada, bob}});
    ASSERT_EQ(harness.fetches.size(), 2U) << info.kind();
    EXPECT_EQ(harness.fetches[0].from, ada);
    EXPECT_EQ(harness.fetches[1].from, bob);
    EXPECT_EQ(harness.fetches[1].manifest, name);
    EXPECT_EQ(harness.fetches[1].bytes, info.object().bytes());
    EXPECT_TRUE(harness.core().lost_objects().empty()) << "somebody was asked";
    harness.step(HeldElsewhere{name, {bob}});
    EXPECT_EQ(harness.fetches.size(), 2U) << "not again at once";
    harness.run_for(harness.config.replica_patience + std::chrono::seconds(1));
    EXPECT_THAT(harness.core().lost_objects(), ElementsAre(name)) << "they did not give it";
    harness.step(ObjectStored{name, 100, info.object().bytes(), info.kind() == "checkpoint", {}});
    EXPECT_TRUE(harness.core().lost_objects().empty());
  }
}

TEST_F(ObjectTest, VerificationsAreBoundedAndForgotten) {
  harness.add_dataset("more", 30);
  for (const pb::ObjectInfo& info : objects()) verify(*Hash::from_raw(info.object().manifest()));
  EXPECT_EQ(harness.verifies.size(), 16U);
  for (const Hash& each : std::vector<Hash>(harness.verifies))
    harness.step(ObjectChecked{.manifest = each, .done = true});
  harness.run_for(std::chrono::minutes(2));  // nobody asks
  harness.verifies.clear();
  for (const pb::ObjectInfo& info : objects()) verify(*Hash::from_raw(info.object().manifest()));
  EXPECT_EQ(harness.verifies.size(), 16U);
}

TEST_F(ObjectTest, AViewerMayListButNotHaveTheDiskRead) {
  const auto made = harness.admin_ask([](pb::AdminRequest& request) {
    request.mutable_token_create()->set_role(pb::ROLE_VIEWER);
    request.mutable_token_create()->set_uses(1);
    request.mutable_token_create()->set_ttl_seconds(60);
  });
  Who viewer = testing::make_who("vera");
  ASSERT_FALSE(harness.enrol(viewer, made.token_created()).has_error());
  harness.hello(viewer);
  pb::ControlRequest request;
  request.mutable_admin()->mutable_object_list();
  EXPECT_EQ(harness.ask(viewer, request).admin().objects().objects_size(), 6);
  request.mutable_admin()->mutable_object_verify()->set_manifest(head.raw());
  EXPECT_EQ(harness.ask(viewer, request).error().code(), "unauthorised");
}

TEST_F(ObjectTest, ATransferIsToldWithWhatItWasAndFromWhom) {
  const Who other = harness.join("berta");
  tell_transfer(head.raw(), other.id.str());
  auto told = harness.events("transfer");
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].node(), "anna");
  EXPECT_EQ(told[0].run(), "fashion");
  EXPECT_EQ(told[0].step(), 10U);
  EXPECT_EQ(told[0].reason(), "fetched its checkpoint: 8.0 MiB in 2.0 s, 4.0 MiB/s from berta");
  const pb::DatasetAdd content = testing::dataset("data", 2);
  tell_transfer(content.files(0).object().manifest(), "the coordinator's id");
  told = harness.events("transfer");
  EXPECT_EQ(told[1].reason(),
            "fetched router.safetensors of dataset data: 8.0 MiB in 2.0 s, 4.0 MiB/s from the "
            "coordinator");
}

TEST_F(ObjectTest, AFaultOfAPeerIsToldAFewTimesAMinute) {
  const Who other = harness.join("berta");
  const auto tell_fault = [&](pb::PeerFault::Kind kind) {
    pb::ControlRequest request;
    auto& beat = *request.mutable_heartbeat();
    beat.set_incarnation(node.incarnation);
    beat.set_sequence(++node.sequence);
    pb::PeerFault& fault = *beat.add_faults();
    fault.set_peer(other.id.str());
    fault.set_manifest(head.raw());
    fault.set_kind(kind);
    harness.ask(node, std::move(request));
  };
  tell_fault(pb::PeerFault::FAULT_WRONG_BYTES);
  tell_fault(pb::PeerFault::FAULT_NO_ANSWER);
  auto told = harness.events("peer_fault");
  ASSERT_EQ(told.size(), 2U);
  EXPECT_EQ(told[0].node(), "anna");
  EXPECT_EQ(told[0].run(), "fashion");
  EXPECT_EQ(told[0].reason(),
            "fetches its checkpoint: berta sent wrong bytes and is asked no more");
  EXPECT_EQ(told[1].reason(),
            "fetches its checkpoint: berta did not answer and is asked again later");
  for (int i = 0; i < 100; ++i) tell_fault(pb::PeerFault::FAULT_NO_ANSWER);
  EXPECT_EQ(harness.events("peer_fault").size(), 5U);
}

TEST_F(ObjectTest, TransfersWithoutEndAreAFewEventsAMinute) {
  for (int i = 0; i < 100; ++i) tell_transfer(blake2b(text(i)).raw(), "somebody");
  EXPECT_EQ(harness.events("transfer").size(), 20U);
  harness.run_for(std::chrono::minutes(2), [&] { harness.heartbeat(node); });
  const auto told = harness.events("transfer");
  ASSERT_EQ(told.size(), 21U);
  EXPECT_THAT(told.back().reason(), HasSubstr("80 times more within a minute"));
}

TEST_F(ObjectTest, TransfersDriveOutNoOtherEvents) {
  harness.config.transfer_events = 30;
  for (int minute = 0; minute < 4; ++minute) {
    for (int i = 0; i < 20; ++i) tell_transfer(blake2b(text(minute, i)).raw(), "somebody");
    harness.run_for(std::chrono::minutes(2), [&] { harness.heartbeat(node); });
  }
  EXPECT_EQ(harness.events("transfer").size(), 30U);
  EXPECT_EQ(harness.events("node_joined").size(), 1U);
  harness.restart();
  node.connection.clear();
  harness.hello(node);
  tell_transfer(blake2b("one more").raw(), "somebody");
  EXPECT_EQ(harness.events("transfer").size(), 30U);
}

}  // namespace
}  // namespace skerry::coordinator
