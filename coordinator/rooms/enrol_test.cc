// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "coordinator/testing/testing.h"

namespace skerry::coordinator {
namespace {

using ::testing::Contains;
using testing::Harness;
using ::testing::HasSubstr;
using testing::Who;

pb::TokenCreated make_token(Harness& harness, pb::Role role, std::uint32_t uses = 1,
                            std::uint64_t ttl = 3600) {
  return harness
      .admin_ask([&](pb::AdminRequest& request) {
        request.mutable_token_create()->set_role(role);
        request.mutable_token_create()->set_uses(uses);
        request.mutable_token_create()->set_ttl_seconds(ttl);
      })
      .token_created();
}

pb::TokenInfo token_info(Harness& harness, const std::string& id) {
  const pb::AdminReply reply =
      harness.admin_ask([](pb::AdminRequest& request) { request.mutable_token_list(); });
  for (const pb::TokenInfo& info : reply.tokens().tokens()) {
    if (info.id() == id) return info;
  }
  return {};
}

TEST(Enrol, AFirstStartHasAnAdminAndAToken) {
  Harness harness;
  EXPECT_FALSE(harness.first.certificate.body().empty());
  EXPECT_EQ(harness.first.token.info().role(), pb::ROLE_NODE);
  EXPECT_EQ(harness.hello(harness.admin).hello().role(), pb::ROLE_ADMIN);
  harness.restart();
  EXPECT_FALSE(harness.core().is_empty());
  EXPECT_EQ(harness.hello(harness.admin).hello().role(), pb::ROLE_ADMIN);
}

TEST(Enrol, ARetryGetsTheSameAnswerAndSpendsNothing) {
  Harness harness;
  const pb::TokenCreated token = make_token(harness, pb::ROLE_NODE);
  const Who node = testing::make_who("n1");
  const pb::EnrolReply first = harness.enrol(node, token);
  ASSERT_FALSE(first.has_error()) << first.error().message();
  EXPECT_EQ(harness.enrol(node, token).SerializeAsString(), first.SerializeAsString());
  harness.restart();  // S13: across a crash too
  EXPECT_EQ(harness.enrol(node, token).SerializeAsString(), first.SerializeAsString());
  EXPECT_EQ(token_info(harness, token.info().id()).used(), 1U);
}

TEST(Enrol, ASpentTokenEnrolsNobodyElse) {
  Harness harness;
  const pb::TokenCreated token = make_token(harness, pb::ROLE_NODE);
  EXPECT_FALSE(harness.enrol(testing::make_who("n1"), token).has_error());
  EXPECT_THAT(harness.enrol(testing::make_who("n2"), token).error().message(),
              HasSubstr("is spent: it had 1 use"));
  harness.restart();
  EXPECT_EQ(harness.enrol(testing::make_who("n2"), token).error().code(), "unauthorised");
}

TEST(Enrol, EachRefusalSaysWhy) {
  Harness harness;
  pb::TokenCreated token = make_token(harness, pb::ROLE_NODE, 5, 60);
  const Who node = testing::make_who("n1");
  pb::TokenCreated wrong = token;
  wrong.set_secret("another");
  EXPECT_THAT(harness.enrol(node, wrong).error().message(), HasSubstr("wrong secret"));
  wrong.mutable_info()->set_id("000000000000");
  EXPECT_THAT(harness.enrol(node, wrong).error().message(),
              HasSubstr("unknown to this coordinator"));
  Who thief = node;
  thief.key = std::string(32, 'x');
  EXPECT_THAT(harness.enrol(thief, token).error().message(), HasSubstr("not the sender's"));
  harness.run_for(std::chrono::seconds(61));
  EXPECT_THAT(harness.enrol(node, token).error().message(), HasSubstr("expired at"));
  token = make_token(harness, pb::ROLE_NODE, 5);
  harness.admin_ask([&](pb::AdminRequest& request) {
    request.mutable_token_revoke()->set_name(token.info().id());
  });
  EXPECT_THAT(harness.enrol(node, token).error().message(), HasSubstr("is revoked"));
}

TEST(Enrol, TheAnswerWaitsForTheDisk) {
  Harness harness;
  const pb::TokenCreated token = make_token(harness, pb::ROLE_NODE);
  harness.disk_stalls = true;
  EXPECT_DEATH(harness.enrol(testing::make_who("n1"), token), "an enrolment is answered");
}

TEST(Enrol, AViewerReadsAndANodeDoesNotAsk) {
  Harness harness;
  Who viewer = testing::make_who("viewer");
  ASSERT_FALSE(harness.enrol(viewer, make_token(harness, pb::ROLE_VIEWER)).has_error());
  harness.hello(viewer);
  pb::ControlRequest read;
  read.mutable_admin()->mutable_node_list();
  EXPECT_TRUE(harness.ask(viewer, read).has_admin());
  pb::ControlRequest change;
  change.mutable_admin()->mutable_token_create()->set_uses(1);
  EXPECT_THAT(harness.ask(viewer, change).error().message(), HasSubstr("a viewer may only read"));
  const Who node = harness.join("n1");
  EXPECT_EQ(harness.ask(node, read).error().code(), "unauthorised");
  pb::ControlRequest commit;
  commit.mutable_commit();
  EXPECT_THAT(harness.ask(viewer, commit).error().message(), HasSubstr("only a node"));
}

TEST(Roster, ANodeIsFoundByTheBeginningOfItsIdThatPeopleSee) {
  Harness harness;
  const Who node = harness.join("n1");
  const auto found = [&](const std::string& name) {
    const pb::AdminReply reply = harness.admin_ask(
        [&](pb::AdminRequest& request) { request.mutable_node_show()->set_name(name); });
    return reply.nodes().nodes_size() == 1 ? reply.nodes().nodes(0).id()
                                           : harness.last_error.code();
  };
  EXPECT_EQ(found("n1"), node.id.str());
  EXPECT_EQ(found(node.id.str()), node.id.str());
  EXPECT_EQ(found(node.id.str().substr(0, 12)), node.id.str());
  EXPECT_EQ(found(node.id.str().substr(0, 11)), "not_found");
  EXPECT_EQ(found(node.id.str().substr(0, 12) + "zz"), "not_found");
}

TEST(Roster, PeersAreForPeopleWhoWantThem) {
  Harness harness;
  pb::ControlRequest request;
  request.mutable_hello()->mutable_version()->set_major(protocol::kVersionMajor);
  request.mutable_hello()->mutable_version()->set_minor(protocol::kVersionMinor);
  EXPECT_FALSE(harness.ask(harness.admin, request).hello().has_peers());
  request.mutable_hello()->set_wants_peers(true);
  EXPECT_TRUE(harness.ask(harness.admin, request).hello().has_peers());
  Who node = harness.join("n1");
  request.mutable_hello()->set_incarnation(node.incarnation);
  request.mutable_hello()->add_slots()->set_device("cpu");
  const pb::ControlReply answer = harness.ask(node, request);
  ASSERT_TRUE(answer.has_hello());
  EXPECT_FALSE(answer.hello().has_peers());
}

TEST(Roster, HelloComesFirst) {
  Harness harness;
  Who node = harness.join("n1");
  node.connection = "another";
  pb::ControlRequest request;
  request.mutable_get_assignment();
  EXPECT_EQ(harness.ask(node, request).error().message(), kHelloFirst);
  harness.hello(node);
  EXPECT_TRUE(harness.ask(node, request).has_assignment());
}

TEST(Roster, AnotherMajorVersionIsRefused) {
  Harness harness;
  Who node = harness.join("n1");
  pb::ControlRequest request;
  request.mutable_hello()->set_incarnation(node.incarnation);
  request.mutable_hello()->add_slots();
  auto& version = *request.mutable_hello()->mutable_version();
  version.set_major(protocol::kVersionMajor);
  version.set_minor(protocol::kVersionMinor + 1);
  EXPECT_TRUE(harness.ask(node, request).has_hello());
  version.set_minor(protocol::kVersionMinor + 2);
  EXPECT_THAT(harness.ask(node, request).error().message(), HasSubstr("upgrade the older"));
  version.set_major(protocol::kVersionMajor + 1);
  EXPECT_TRUE(harness.ask(node, request).has_error());
}

TEST(Roster, ARevokedKeyGetsNothingAccepted) {
  Harness harness;
  Who node = harness.join("n1");
  harness.create_run("fashion", 1);
  const pb::Commit commit = testing::next_commit(harness.assignment(node).slots(0));
  harness.admin_ask(
      [](pb::AdminRequest& request) { request.mutable_node_revoke()->set_name("n1"); });
  EXPECT_THAT(harness.disconnected, Contains(node.connection));
  pb::ControlRequest request;
  *request.mutable_commit() = commit;
  EXPECT_THAT(harness.ask(node, request).error().message(), HasSubstr("revoked"));
  EXPECT_FALSE(harness.core().node_of_key(node.key));
  EXPECT_THAT(harness.enrol(node, harness.first.token).error().message(), HasSubstr("revoked"));
  harness.restart();
  EXPECT_EQ(harness.hello(node).error().code(), "unauthorised");
  EXPECT_FALSE(harness.core().experts()[0].lease);
}

TEST(Roster, TheLastAdminStays) {
  Harness harness;
  harness.admin_ask(
      [](pb::AdminRequest& request) { request.mutable_node_revoke()->set_name("admin"); });
  EXPECT_EQ(harness.last_error.code(), "conflict");
}

TEST(Roster, ShowsWhereANodeDialsFrom) {
  Harness harness;
  Who node = harness.join("n1");
  const auto address = [&] {
    return harness
        .admin_ask([](pb::AdminRequest& request) { request.mutable_node_show()->set_name("n1"); })
        .nodes()
        .nodes(0)
        .address();
  };
  EXPECT_EQ(address(), "192.0.2.1");
  node.address = "198.51.100.7";
  harness.reconnect(node);
  EXPECT_EQ(address(), "198.51.100.7");
}

TEST(Roster, AnotherProcessOfTheSameNodeTakesItsPlace) {
  Harness harness;
  Who old_process = harness.join("n1");
  Who new_process = old_process;
  ++new_process.incarnation;
  new_process.connection.clear();
  harness.hello(new_process);
  EXPECT_THAT(harness.disconnected, Contains(old_process.connection));
  new_process.sequence = 0;
  harness.heartbeat(new_process);
  EXPECT_TRUE(harness.hello(old_process).has_error());
}

// What a process had sent when it was killed can arrive after its successor is
// at work: the kernel sends it again.
TEST(Roster, AKilledProcessesLateHelloDoesNotShutOutItsSuccessor) {
  Harness harness;
  harness.create_run("fashion", 1);
  Who living = harness.join("n1");
  harness.heartbeat(living);
  Who killed = living;
  ++killed.incarnation;
  killed.connection.clear();
  EXPECT_TRUE(harness.hello(killed).has_hello()) << "nothing tells it from a new start";
  living.connection.clear();
  EXPECT_TRUE(harness.hello(living).has_hello());
  EXPECT_EQ(harness.heartbeat(living).renewed_size(), 1);
}

TEST(Roster, AskedForItsLog) {
  Harness harness;
  Who node = harness.join("n1");
  const auto ask = [&] {
    return harness
        .admin_ask([](pb::AdminRequest& request) { request.mutable_node_logs()->set_name("n1"); })
        .logs();
  };
  EXPECT_FALSE(ask().ready());
  const std::uint64_t number = harness.heartbeat(node).log_request();
  ASSERT_NE(number, 0U);
  pb::ControlRequest log;
  log.mutable_node_log()->set_request(number);
  log.mutable_node_log()->add_lines("engine: step 3");
  harness.ask(node, log);
  const pb::NodeLogs lines = ask();
  ASSERT_TRUE(lines.ready());
  EXPECT_EQ(lines.lines(0), "engine: step 3");
  EXPECT_EQ(harness.heartbeat(node).log_request(), 0U);
}

TEST(Roster, ListsComeInPages) {
  Harness harness;
  for (const char* name : {"a", "b", "c"}) harness.join(name);
  const auto ask = [&](const std::string& after) {
    return harness
        .admin_ask([&](pb::AdminRequest& request) {
          request.mutable_node_list()->set_after(after);
          request.mutable_node_list()->set_limit(3);
        })
        .nodes();
  };
  const pb::NodeListReply first = ask("");  // "a", "admin" (not a node), "b"
  ASSERT_EQ(first.nodes_size(), 2);
  EXPECT_EQ(first.next(), "b");
  const pb::NodeListReply second = ask(first.next());
  ASSERT_EQ(second.nodes_size(), 1);
  EXPECT_EQ(second.nodes(0).name(), "c");
  EXPECT_EQ(second.next(), "");
}

void pass(Harness& harness, Duration time) {
  harness.now.boot += time;
  harness.now.unix_ms += time / std::chrono::milliseconds(1);
  harness.step(Tick{});
}

void leave(Harness& harness, Who& who) {
  harness.heartbeat(who, true);
  harness.step(Closed{who.connection});
  who.connection.clear();
}

bool is_known(Harness& harness, const Who& who) {
  harness.admin_ask(
      [&](pb::AdminRequest& request) { request.mutable_node_show()->set_name(who.id.str()); });
  return harness.last_error.code().empty();
}

constexpr Duration kMonth = std::chrono::hours(24) * 31;

TEST(Roster, ForgetsNodesThatAreGoneForLong) {
  Harness harness;
  Who author = harness.join("author");
  harness.create_run("fashion", 1);
  harness.commit_round(author);
  harness.return_lease(author, "enough");
  Who here = harness.join("here");
  Who lost = harness.join("lost");
  Who left = harness.join("left");
  Who revoked = harness.join("revoked");
  Who never = testing::make_who("never");  // enrolled and was not seen since
  harness.enrol(never, harness.first.token);
  harness.admin_ask(
      [](pb::AdminRequest& request) { request.mutable_node_revoke()->set_name("revoked"); });
  leave(harness, left);
  leave(harness, author);
  harness.step(Closed{lost.connection});
  lost.connection.clear();
  harness.run_for(std::chrono::seconds(20), [&] { harness.heartbeat(here); });
  ASSERT_EQ(harness.events("node_lost").size(), 1U);

  pass(harness, kMonth - std::chrono::hours(48));
  harness.heartbeat(here);
  EXPECT_TRUE(is_known(harness, lost));
  pass(harness, std::chrono::hours(48));
  for (const Who& who : {lost, left, never}) EXPECT_FALSE(is_known(harness, who)) << who.name;
  for (const Who& who : {here, author, revoked}) EXPECT_TRUE(is_known(harness, who)) << who.name;
  EXPECT_THAT(harness.events("nodes_forgotten").at(0).reason(),
              HasSubstr("3 nodes were gone for over"));

  harness.restart();
  harness.reconnect(here);
  for (const Who& who : {lost, left, never}) EXPECT_FALSE(is_known(harness, who)) << who.name;
  EXPECT_EQ(harness.send_hello(lost).back().error().code(), to_string(ErrorCode::kUnauthorised));
  const pb::TokenCreated token = make_token(harness, pb::ROLE_NODE, 5);
  EXPECT_EQ(harness.enrol(revoked, token).error().code(), to_string(ErrorCode::kUnauthorised));
  EXPECT_TRUE(harness.enrol(lost, token).has_certificate());
  harness.reconnect(lost);
  EXPECT_TRUE(is_known(harness, lost));
}

TEST(Roster, AHolderIsNotForgottenThoughItsLeaseLapsedLongAgo) {
  Harness harness;
  Who holder = harness.join("holder");
  harness.create_run("fashion", 1);
  harness.run_for(std::chrono::seconds(20));
  pass(harness, kMonth);
  EXPECT_TRUE(is_known(harness, holder));
  harness.reconnect(holder);
  EXPECT_EQ(harness.events("lease_resumed").size(), 1U);
}

// Its old connection is a person's, which no node's record names.
TEST(Roster, APersonWhoseKeyBecameANodesIsNotForgottenWhileConnected) {
  Harness harness;
  Who viewer = testing::make_who("viewer");
  ASSERT_FALSE(harness.enrol(viewer, make_token(harness, pb::ROLE_VIEWER)).has_error());
  harness.hello(viewer);
  pass(harness, kMonth + std::chrono::hours(24));
  ASSERT_FALSE(harness.enrol(viewer, make_token(harness, pb::ROLE_NODE)).has_error());
  pass(harness, kMonth + std::chrono::hours(24));
  EXPECT_TRUE(is_known(harness, viewer));
  harness.step(Closed{viewer.connection});
  pass(harness, std::chrono::hours(1));
  EXPECT_FALSE(is_known(harness, viewer));
}

TEST(Roster, MakesRoomForWhoJoinsWithAToken) {
  Harness harness;
  harness.config.nodes = 10;
  const pb::TokenCreated token = make_token(harness, pb::ROLE_NODE, 1000, 86400);
  std::vector<Who> joined;
  for (int i = 0; i < 9; ++i) joined.push_back(harness.join(text("n", i)));
  leave(harness, joined[4]);
  const Who late = testing::make_who("late");
  EXPECT_THAT(harness.enrol(late, token).error().message(),
              HasSubstr("the roster is full: it has 10 keys"));
  EXPECT_TRUE(is_known(harness, joined[4])) << "it has been gone for a moment only";
  EXPECT_EQ(token_info(harness, token.info().id()).used(), 0U);
  pass(harness, std::chrono::hours(2));
  pb::TokenCreated wrong = token;
  wrong.set_secret(std::string(32, 'x'));
  EXPECT_TRUE(harness.enrol(late, wrong).has_error());
  EXPECT_TRUE(is_known(harness, joined[4])) << "nobody makes room without a token";
  EXPECT_TRUE(harness.enrol(late, token).has_certificate());
  EXPECT_FALSE(is_known(harness, joined[4]));
}

TEST(Roster, TwentyThousandAndOneMachinesComeAndGo) {
  Harness harness;
  const pb::TokenCreated token = make_token(harness, pb::ROLE_NODE, 100'000, 7 * 86400);
  for (int i = 0; i < 20'001; ++i) {
    ASSERT_TRUE(harness.enrol(testing::make_who(text("n", i)), token).has_certificate()) << i;
    if (i % 1000 == 0) pass(harness, std::chrono::hours(1));
  }
}

// The recovery window is for those that were here.
TEST(Roster, NodesThatWereGoneKeepNoRecoveryWindowOpen) {
  Harness harness;
  harness.config.dials_per_second = 1;
  Who holder = harness.join("holder");
  harness.create_run("fashion", 1);
  for (int i = 0; i < 30; ++i) {
    Who other = harness.join(text("n", i));
    leave(harness, other);
  }
  harness.restart();
  harness.run_for(std::chrono::seconds(12));
  EXPECT_EQ(harness.events("lease_lost").size(), 1U);
}

TEST(State, DamageRefusesToStart) {
  Harness harness;
  harness.join("n1");
  harness.create_run("fashion", 1);
  testing::CountingRng rng(2);
  const testing::TextAuthority authority;
  const auto load = [&](const std::map<std::string, std::string>& disk) {
    std::vector<KeyValue> state;
    for (const auto& [key, value] : disk) state.push_back({key, value});
    return Core::load(harness.config, rng, authority, state, harness.now);
  };
  ASSERT_TRUE(load(harness.disk));
  for (const auto& [key, value] : harness.disk) {
    if (key.starts_with("event/")) continue;  // a missing event is no damage
    if (key.starts_with("token/")) continue;
    auto damaged = harness.disk;
    damaged[key] = std::string("\xff\xff\xff\xff", 4);
    const auto loaded = load(damaged);
    ASSERT_FALSE(loaded) << key;
    EXPECT_EQ(loaded.error().code, ErrorCode::kCorrupt);
    EXPECT_THAT(loaded.error().message, HasSubstr(key));
    if (key.starts_with("node/") && value.find("n1") == std::string::npos)
      continue;  // the admin holds nothing
    damaged.erase(key);
    if (key.starts_with("run/")) continue;
    EXPECT_FALSE(load(damaged)) << "without " << key;
  }
}

}  // namespace
}  // namespace skerry::coordinator
