// SPDX-License-Identifier: Apache-2.0
// What people are told while the coordinator's disk has no room: reads are
// answered, changes are refused, and what frees room is written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/testing/testing.h"

namespace skerry::coordinator {
namespace {

using testing::Harness;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class FullDisk : public ::testing::Test {
 protected:
  FullDisk() {
    harness_.create_run("run", 1);
    harness_.disk_stalls = true;
    harness_.run_for(std::chrono::seconds(1));
    harness_.step(RoomForBatches{.lacking = true});
  }

  void token_create(pb::AdminRequest& request) {
    request.mutable_token_create()->set_role(pb::ROLE_NODE);
    request.mutable_token_create()->set_uses(1);
    request.mutable_token_create()->set_ttl_seconds(60);
  }
  pb::AdminReply create_token() {
    return harness_.admin_ask([this](pb::AdminRequest& request) { token_create(request); });
  }
  pb::AdminReply tokens() {
    return harness_.admin_ask([](pb::AdminRequest& request) { request.mutable_token_list(); });
  }

  Harness harness_;
};

TEST_F(FullDisk, AReadIsAnsweredAndItsReaderIsWarned) {
  harness_.admin.connection.clear();
  EXPECT_EQ(harness_.hello(harness_.admin).hello().name(), "admin");
  EXPECT_TRUE(tokens().lacks_room());
  EXPECT_EQ(harness_.run("run").name(), "run");
  harness_.admin_ask([](pb::AdminRequest& request) { request.mutable_run_show()->set_name("x"); });
  EXPECT_EQ(harness_.last_error.code(), "not_found") << "an error that changes nothing, too";
}

TEST_F(FullDisk, AChangeIsRefusedAtOnceAndNeverMade) {
  const int before = tokens().tokens().tokens_size();
  create_token();
  EXPECT_EQ(harness_.last_error.code(), "exhausted");
  EXPECT_THAT(harness_.last_error.message(), HasSubstr("disk is full, and nothing was changed"));

  harness_.disk_stalls = false;
  harness_.persist();
  harness_.step(RoomForBatches{.lacking = false});
  EXPECT_EQ(tokens().tokens().tokens_size(), before);
  create_token();
  EXPECT_EQ(harness_.last_error.code(), "");
  EXPECT_EQ(tokens().tokens().tokens_size(), before + 1);
}

TEST_F(FullDisk, WhatFreesRoomIsMadeAndAcknowledgedOnceItIsDurable) {
  harness_.hello(harness_.admin);
  pb::ControlRequest pause;
  pause.mutable_admin()->mutable_run_pause()->set_name("run");
  EXPECT_THAT(harness_.send(harness_.admin, pause), IsEmpty());
  harness_.persist();
  EXPECT_THAT(harness_.inbox(harness_.admin), SizeIs(1));
  EXPECT_EQ(harness_.run("run").state(), "paused");
}

TEST_F(FullDisk, WhatWouldFreeRoomAndCannotIsRefusedAtOnce) {
  harness_.admin_ask(
      [](pb::AdminRequest& request) { request.mutable_dataset_delete()->set_name("none"); });
  EXPECT_EQ(harness_.last_error.code(), "not_found");
  harness_.admin_ask(
      [](pb::AdminRequest& request) { request.mutable_run_delete()->set_name("run"); });
  EXPECT_EQ(harness_.last_error.code(), "conflict") << "it must be paused first";
}

TEST_F(FullDisk, APersonsTokenIsNotSpent) {
  harness_.disk_stalls = false;
  harness_.step(RoomForBatches{.lacking = false});
  pb::AdminRequest request;
  token_create(request);
  request.mutable_token_create()->set_role(pb::ROLE_VIEWER);
  const pb::TokenCreated token = harness_.admin_ask(request).token_created();
  harness_.disk_stalls = true;
  harness_.step(RoomForBatches{.lacking = true});
  const testing::Who person = testing::make_who("person");
  EXPECT_EQ(harness_.enrol(person, token).error().code(), "exhausted");
  harness_.disk_stalls = false;
  harness_.persist();
  harness_.step(RoomForBatches{.lacking = false});
  EXPECT_FALSE(harness_.enrol(person, token).has_error());
}

TEST_F(FullDisk, ANodesHelloWaits) {
  harness_.disk_stalls = false;
  harness_.step(RoomForBatches{.lacking = false});
  testing::Who node = harness_.join("node");
  harness_.disk_stalls = true;
  harness_.step(RoomForBatches{.lacking = true});
  node.connection.clear();
  node.incarnation += 1;
  EXPECT_THAT(harness_.send_hello(node), IsEmpty()) << "it may name what is not durable";
}

}  // namespace
}  // namespace skerry::coordinator
