// SPDX-License-Identifier: Apache-2.0
// --idle-exec: once, agreed with the coordinator, and never under a lease.
#include "daemon/core/idle.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "daemon/testing/core_harness.h"

namespace skerry::daemon {
namespace {

using ::testing::HasSubstr;

constexpr Duration kLimit = std::chrono::minutes(10);

class IdleExecTest : public ::testing::Test {
 protected:
  IdleExecTest() {
    CoreConfig config;
    config.incarnation = 42;
    config.price = 0.44;
    config.idle_limit = kLimit;
    pb::Slot& slot = config.slots.emplace_back();
    slot.set_index(0);
    slot.set_device("NVIDIA H200");
    h.core = std::make_unique<Core>(std::move(*Core::make(std::move(config), {})));
    h.step(Tick{});
    h.connect();
    h.assign({});
  }

  // Answers each heartbeat as a coordinator that lets idle nodes stop, or not.
  void live(Duration time, bool may_stop) {
    for (const Duration until = h.now + time; h.now < until;) {
      h.pass(seconds(1));
      if (!h.has_sent(&pb::ControlRequest::has_heartbeat)) continue;
      const pb::ControlRequest asked = h.last_sent(&pb::ControlRequest::has_heartbeat);
      last_beat = asked.heartbeat();
      auto reply = h.reply_to(asked.id());
      reply.mutable_heartbeat()->set_sequence(last_beat.sequence());
      reply.mutable_heartbeat()->set_assignment_version(h.version);
      reply.mutable_heartbeat()->set_may_stop(may_stop && last_beat.idle());
      h.sent.clear();
      h.say(reply);
    }
  }
  void end(bool ok) { h.step(IdleExecEnded{ok, ok ? "exit code 0" : "exit code 3"}); }
  auto starts() const { return std::ranges::count(h.idle_orders, IdleExecOrder::kStart); }
  auto kills() const { return std::ranges::count(h.idle_orders, IdleExecOrder::kKill); }

  Harness h;
  pb::Heartbeat last_beat;
};

TEST_F(IdleExecTest, HelloSaysThePrice) {
  h.step(ConnectionClosed{"cut"});
  h.step(ConnectionOpened{});
  EXPECT_EQ(h.last_sent(&pb::ControlRequest::has_hello).hello().price(), 0.44);
}

TEST_F(IdleExecTest, RunsOnceIfTheCoordinatorAgrees) {
  live(kLimit - seconds(5), true);
  EXPECT_FALSE(last_beat.idle());
  live(seconds(10), false);
  EXPECT_TRUE(last_beat.idle());
  live(std::chrono::minutes(10), false);
  EXPECT_EQ(starts(), 0);
  live(seconds(2), true);
  EXPECT_EQ(starts(), 1);
  live(seconds(1), true);
  EXPECT_THAT(last_beat.notice(), HasSubstr("--idle-exec runs"));
  end(true);
  live(kIdleLivesOn - seconds(5), true);
  EXPECT_TRUE(last_beat.idle());  // it may be about to end
  live(seconds(10), true);
  EXPECT_FALSE(last_beat.idle());
  live(10 * kLimit, true);
  EXPECT_EQ(starts(), 1);
  EXPECT_EQ(kills(), 0);
}

TEST_F(IdleExecTest, RunsAgainOnlyAfterWork) {
  live(kLimit + seconds(5), true);
  end(true);
  live(2 * kLimit, true);
  h.assign({h.grant()});
  h.assign({});
  live(kLimit + seconds(5), true);
  EXPECT_EQ(starts(), 2);
}

TEST_F(IdleExecTest, NeverRunsUnderALease) {
  h.assign({h.grant()});
  live(2 * kLimit, true);
  EXPECT_FALSE(last_beat.idle());
  h.assign({});
  live(kLimit + seconds(5), false);
  EXPECT_TRUE(last_beat.idle());
  h.assign({h.grant(2)});
  h.pass(seconds(1));
  auto unasked = h.reply_to(h.last_sent(&pb::ControlRequest::has_heartbeat).id());
  unasked.mutable_heartbeat()->set_may_stop(true);
  h.say(unasked);
  live(2 * kLimit, true);
  EXPECT_FALSE(last_beat.idle());
  EXPECT_EQ(starts(), 0);
}

TEST_F(IdleExecTest, AHangIsKilledAndTold) {
  live(kLimit + seconds(2), true);
  EXPECT_EQ(starts(), 1);
  EXPECT_EQ(kills(), 0);
  live(kIdleExecLimit, true);
  EXPECT_GE(kills(), 1);
  h.step(IdleExecEnded{false, "signal 9"});
  live(seconds(2), true);
  EXPECT_FALSE(last_beat.idle());
  EXPECT_THAT(last_beat.notice(), HasSubstr("did not end within 1 m"));
  live(2 * kLimit, true);
  EXPECT_EQ(starts(), 1);
}

TEST_F(IdleExecTest, AFailureIsToldAndTheNodeWorksOn) {
  live(kLimit + seconds(2), true);
  end(false);
  live(seconds(2), true);
  EXPECT_FALSE(last_beat.idle());
  EXPECT_THAT(last_beat.notice(), HasSubstr("--idle-exec failed: exit code 3"));
  h.assign({h.grant()});
  live(seconds(2), true);
  EXPECT_EQ(last_beat.notice(), "");
}

TEST_F(IdleExecTest, WhileItRunsAHelloSaysSo) {
  live(kLimit + seconds(2), true);
  EXPECT_EQ(starts(), 1);
  h.step(ConnectionClosed{"cut"});
  h.step(ConnectionOpened{});
  EXPECT_TRUE(h.last_sent(&pb::ControlRequest::has_hello).hello().stopping());
}

// `systemctl stop skerryd; end-the-rental`, or a host that sends SIGTERM.
TEST_F(IdleExecTest, RunsOnWhileItEndsTheNode) {
  live(kLimit + seconds(2), true);
  ASSERT_EQ(starts(), 1);
  h.step(DrainRequested{});
  live(seconds(5), true);
  EXPECT_EQ(kills(), 0);
}

TEST_F(IdleExecTest, ADrainComesFirst) {
  live(kLimit - seconds(2), true);
  h.step(NoticeReceived{h.now + std::chrono::hours(1), "the platform ends it"});
  live(2 * kLimit, true);
  EXPECT_EQ(starts(), 0);
}

}  // namespace
}  // namespace skerry::daemon
