// SPDX-License-Identifier: Apache-2.0
// What an enrolled node may say, in any order: no message ends the coordinator,
// and none keeps it from starting again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/text.h"
#include "coordinator/testing/testing.h"

namespace skerry::coordinator {
namespace {

using testing::expert;
using testing::Harness;
using ::testing::HasSubstr;
using testing::held_by;
using testing::Who;

pb::ControlRequest report_of(const pb::SlotAssignment& slot, pb::EngineEvent::Failure failure,
                             bool gives_up) {
  pb::ControlRequest request;
  pb::EngineReport& report = *request.mutable_engine_report();
  report.set_run(slot.run());
  report.set_expert(slot.expert());
  report.set_epoch(slot.epoch());
  report.set_attempt(slot.attempt());
  report.set_failure(failure);
  report.set_reason("forged");
  report.set_gives_up(gives_up);
  return request;
}

// "é" again and again, after `first`: a cut at the limit leaves half of one for
// one of two lengths of `first`.
std::string accented(std::size_t bytes, const std::string& first = "") {
  std::string text = first;
  while (text.size() + 2 <= bytes) text += "\xc3\xa9";
  return text;
}

TEST(HostileNode, MayGiveUpWithTheReportThatUsesUpTheAttempts) {
  Harness harness;
  const Who node = harness.join("n1");
  harness.create_run("fashion", 1);
  for (std::uint32_t i = 1; i < harness.config.attempts; ++i)
    harness.ask(node, report_of(harness.assignment(node).slots(0),
                                pb::EngineEvent::FAILURE_NON_FINITE, false));
  const pb::SlotAssignment slot = harness.assignment(node).slots(0);
  for (int twice = 0; twice < 2; ++twice)
    harness.ask(node, report_of(slot, pb::EngineEvent::FAILURE_NON_FINITE, true));
  EXPECT_EQ(harness.run("fashion").state(), "failed");
  EXPECT_FALSE(expert(harness).lease);
  EXPECT_EQ(harness.events("lease_returned").size(), 1U) << "a lease is released once";
  harness.restart();
  EXPECT_EQ(harness.run("fashion").state(), "failed");
}

TEST(HostileNode, GivesUpInEachAttempt) {
  Harness harness;
  Who node = harness.join("n1");
  harness.create_run("fashion", 1);
  for (std::uint32_t i = 0; i < harness.config.attempts; ++i) {
    ASSERT_TRUE(held_by(harness, node)) << i;
    harness.ask(node, report_of(harness.assignment(node).slots(0),
                                pb::EngineEvent::FAILURE_NON_FINITE, true));
    ++node.incarnation;  // started again: it is not avoided any more
    harness.hello(node);
  }
  EXPECT_EQ(harness.run("fashion").state(), "failed");
}

// A text is cut at its limit. Half a character there would make the stored
// message unreadable at the next start.
TEST(HostileNode, LongReasonsStayReadable) {
  Harness harness;
  Who node = harness.join("n1");
  harness.create_run("fashion", 1);
  for (std::uint32_t i = 0; i < harness.config.attempts; ++i) {
    pb::ControlRequest request =
        report_of(harness.assignment(node).slots(0), pb::EngineEvent::FAILURE_NON_FINITE, false);
    request.mutable_engine_report()->set_reason(
        accented(protocol::kReasonBytes, i % 2 == 0 ? "" : "x"));
    harness.ask(node, request);
  }
  EXPECT_EQ(harness.run("fashion").state(), "failed");
  harness.restart();
  harness.hello(node);
  EXPECT_EQ(harness.run("fashion").state(), "failed");
}

TEST(HostileNode, LongLabelsStayReadable) {
  Harness harness;
  Who node = harness.join("n1");
  for (const std::string first : {"", "x"}) {
    node.host = accented(2 * protocol::kNameBytes, first);
    harness.reconnect(node);
    const auto shown = harness.admin_ask(
        [](pb::AdminRequest& request) { request.mutable_node_show()->set_name("n1"); });
    EXPECT_THAT(shown.nodes().nodes(0).host_label(), ::testing::StartsWith(first + "\xc3\xa9"));
  }
}

pb::Commit stale_commit(const std::string& run, std::uint64_t epoch) {
  pb::SlotAssignment slot;
  slot.set_run(run);
  slot.set_epoch(epoch);
  return testing::next_commit(slot);
}

TEST(HostileNode, DrivesNoOtherEventOutOfTheLog) {
  Harness harness;
  Who holder = harness.join("honest");
  const std::string run = harness.create_run("fashion", 1);
  harness.commit_round(holder);
  const std::size_t before = harness.events().size();
  const Who hostile = harness.join("hostile");  // without a lease
  for (int second = 0; second < 100; ++second) {
    for (int i = 0; i < 201; ++i)
      harness.send_commit(hostile, stale_commit(run, 1 + 201U * second + i));
    harness.heartbeat(holder);
    harness.run_for(std::chrono::seconds(1));
  }
  EXPECT_EQ(harness.events("committed").size(), 1U);
  EXPECT_EQ(harness.events("dataset_ready").size(), 1U);
  EXPECT_LT(harness.events().size(), before + 100);
  harness.run_for(std::chrono::minutes(1));
  EXPECT_THAT(harness.events("fenced").back().reason(), HasSubstr(" times more within a minute"));
}

// Slowly, by everything that it may cause: its own oldest events make room.
TEST(HostileNode, HasItsShareOfTheLog) {
  Harness harness;
  harness.config.events = 400;
  harness.config.events_of_node = 100;
  harness.config.run_state_events = 50;
  Who honest = harness.join("honest");
  harness.create_run("other", 1);
  harness.commit_round(honest);
  harness.admin_ask(
      [](pb::AdminRequest& request) { request.mutable_node_cordon()->set_name("honest"); });
  const std::string run = harness.create_run("fashion", 1);
  Who hostile = harness.join("hostile");
  for (int minute = 0; minute < 40; ++minute) {
    for (int i = 0; i < 20; ++i) {
      harness.send_commit(hostile, stale_commit(run, 1000U * minute + i + 1));
      const pb::Assignment told = harness.assignment(hostile);
      if (told.slots_size() > 0) {
        harness.ask(hostile, report_of(told.slots(0), pb::EngineEvent::FAILURE_INTERNAL, true));
      }
      ++hostile.incarnation;
      hostile.sequence = 0;
      harness.hello(hostile);
    }
    harness.run_for(std::chrono::minutes(2), [&] {
      harness.heartbeat(honest);
      harness.heartbeat(hostile);
    });
  }
  EXPECT_EQ(harness.events("committed").size(), 1U);
  EXPECT_EQ(harness.events("cordoned").size(), 1U);
  EXPECT_EQ(harness.events("run_created").size(), 2U);
  EXPECT_LE(harness.events("run_state").size(), 50U);
  const auto all = harness.events();
  EXPECT_LE(std::ranges::count_if(all, [](const auto& event) { return event.node() == "hostile"; }),
            100);
  EXPECT_GT(all.size(), 100U);
  harness.restart();
  honest.connection.clear();
  EXPECT_EQ(harness.events("cordoned").size(), 1U);
}

// It commits what a dataset's upload is still fetching: that goes on when the
// commit is given up.
TEST(HostileNode, CancelsNoUpload) {
  Harness harness;
  const Who node = harness.join("n1");
  harness.create_run("fashion", 1);
  pb::AdminRequest request;
  *request.mutable_dataset_add() = testing::dataset("more", 1);
  harness.admin_ask(request);
  pb::Commit commit = testing::next_commit(harness.assignment(node).slots(0));
  commit.mutable_manifest()->set_manifest(request.dataset_add().files(0).object().manifest());
  harness.send_commit(node, commit);
  harness.return_lease(node, "no more");
  EXPECT_THAT(harness.cancelled, ::testing::IsEmpty());
}

// It commits another expert's head, of which the disk here has lost a part. A
// cancelled fetch would remove the rest, and the next start would miss it.
TEST(HostileNode, CancelsNothingThatTheStateNames) {
  Harness harness;
  harness.create_run("fashion", 2);
  const Who honest = harness.join("n1");
  const pb::SlotAssignment trained = harness.assignment(honest).slots(0);
  ASSERT_EQ(harness.commit_round(honest).status(), pb::COMMIT_ACCEPTED);
  const Hash head = *testing::expert(harness, trained.expert()).head;
  const Who hostile = harness.join("n2");
  harness.objects.erase(head);
  harness.step(ObjectDamaged{head});
  pb::Commit commit = testing::next_commit(harness.assignment(hostile).slots(0));
  commit.mutable_manifest()->set_manifest(head.raw());
  harness.fetches.clear();
  harness.send_commit(hostile, commit);
  ASSERT_EQ(harness.fetches.size(), 1U);
  harness.return_lease(hostile, "no more");
  EXPECT_THAT(harness.cancelled, ::testing::IsEmpty());
}

// A token is worth as many keys as it has uses.
TEST(HostileNode, EnrolsWithoutDrivingOthersOutOfTheLog) {
  Harness harness;
  harness.config.enrolled_events = 20;
  harness.create_run("fashion", 1);
  for (int minute = 0; minute < 10; ++minute) {
    const auto token = harness.admin_ask([](pb::AdminRequest& request) {
      request.mutable_token_create()->set_role(pb::ROLE_NODE);
      request.mutable_token_create()->set_uses(1000);
      request.mutable_token_create()->set_ttl_seconds(86400);
    });
    for (int i = 0; i < 300; ++i)
      harness.enrol(testing::make_who(text("n", minute, "-", i)), token.token_created());
    harness.run_for(std::chrono::minutes(1));
  }
  EXPECT_EQ(harness.events("enrolled").size(), 20U);
  EXPECT_THAT(harness.events("enrolled").back().reason(),
              HasSubstr("100 times more within a minute"));
}

}  // namespace
}  // namespace skerry::coordinator
