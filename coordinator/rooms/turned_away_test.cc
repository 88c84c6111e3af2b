// SPDX-License-Identifier: Apache-2.0
// Refusals as events: bounded, for any peers and any number of attempts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "coordinator/testing/testing.h"

namespace skerry::coordinator {
namespace {

using std::chrono::minutes;
using testing::Harness;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using testing::Who;

constexpr char kKind[] = "turned_away";
constexpr char kUnknown[] = "control: its key is not known";

TurnedAway stranger(const std::string& address, const std::string& why = kUnknown) {
  TurnedAway event;
  event.key = std::string(32, 'k');
  event.address = address;
  event.why = why;
  return event;
}

TEST(TurnedAwayEvents, TheFirstIsToldAtOnceAndTheOthersAsANumber) {
  Harness harness;
  for (int i = 0; i < 1000; ++i) harness.step(stranger("10.0.0.9"));
  ASSERT_EQ(harness.events(kKind).size(), 1u);
  EXPECT_EQ(harness.events(kKind)[0].reason(), text("10.0.0.9: ", kUnknown));
  harness.run_for(minutes(2));
  ASSERT_EQ(harness.events(kKind).size(), 2u);
  EXPECT_THAT(harness.events(kKind)[1].reason(), HasSubstr("999 times more within a minute"));
  harness.run_for(minutes(60));
  EXPECT_EQ(harness.events(kKind).size(), 2u) << "who stays away is told no more";
}

TEST(TurnedAwayEvents, ANodeIsNamed) {
  Harness harness;
  const Who node = harness.join("mallory");
  TurnedAway event = stranger("10.0.0.9", "control: sent a message that does not end");
  event.key = node.key;
  harness.step(event);
  ASSERT_EQ(harness.events(kKind).size(), 1u);
  EXPECT_EQ(harness.events(kKind)[0].node(), "mallory");
  EXPECT_THAT(harness.events(kKind)[0].reason(), StartsWith("mallory: control: sent a message"));
}

TEST(TurnedAwayEvents, ManyAddressesCostAFewEventsEachMinute) {
  Harness harness;
  for (int i = 0; i < 10'000; ++i) harness.step(stranger(text("10.1.", i / 256, ".", i % 256)));
  EXPECT_EQ(harness.events(kKind).size(), harness.config.turned_away_kinds + 1);
  EXPECT_EQ(harness.events(kKind).back().reason(), text("others: ", kUnknown));
  harness.run_for(minutes(2));
  EXPECT_THAT(harness.events(kKind).back().reason(), HasSubstr(" times more within a minute"));
}

TEST(TurnedAwayEvents, AFloodForADayDrivesNothingElseOut) {
  Harness harness;
  harness.config.turned_away_events = 50;
  harness.config.events = 100;
  harness.join("n1");
  const auto joined = harness.events("node_joined");
  ASSERT_EQ(joined.size(), 1u);
  for (int minute = 0; minute < 200; ++minute) {
    harness.step(stranger("10.0.0.9"));
    harness.step(stranger(text("10.0.0.", minute)));
    harness.run_for(minutes(1) + std::chrono::seconds(1));
  }
  EXPECT_EQ(harness.events("node_joined").size(), 1u);
  EXPECT_EQ(harness.events(kKind).size(), 50u);
  harness.restart();
  EXPECT_EQ(harness.events(kKind).size(), 50u);
  harness.step(stranger("10.0.0.9", "another reason"));
  EXPECT_EQ(harness.events(kKind).size(), 50u) << "they are counted again after a restart";
}

TEST(TurnedAwayEvents, ARefusedEnrolmentAndARequestWithoutTheRightAreTold) {
  Harness harness;
  pb::TokenCreated token = harness.first.token;
  token.set_secret(std::string(32, 'x'));
  harness.enrol(testing::make_who("thief"), token);
  ASSERT_EQ(harness.events(kKind).size(), 1u);
  EXPECT_THAT(harness.events(kKind)[0].reason(), HasSubstr("enrol: refused: token"));
  Who node = harness.join("n1");
  pb::ControlRequest request;
  request.mutable_admin()->mutable_token_list();
  EXPECT_TRUE(harness.ask(node, request).has_error());
  ASSERT_EQ(harness.events(kKind).size(), 2u);
  EXPECT_EQ(harness.events(kKind)[1].node(), "n1");
}

TEST(JoinEvents, ANodeThatStartsWithoutEndIsToldAFewTimesAndThenAsANumber) {
  Harness harness;
  Who node = harness.join("mallory");
  const auto start_again = [&] {
    ++node.incarnation;
    harness.reconnect(node);
  };
  for (int i = 0; i < 9; ++i) start_again();
  ASSERT_EQ(harness.events("node_joined").size(), 10u)
      << "who starts now and then is told each time";
  for (int i = 0; i < 500; ++i) start_again();
  EXPECT_EQ(harness.events("node_joined").size(), 10u);
  harness.run_for(minutes(1));
  ASSERT_EQ(harness.events("node_joined").size(), 11u);
  EXPECT_EQ(harness.events("node_joined").back().node(), "mallory");
  EXPECT_THAT(harness.events("node_joined").back().reason(),
              HasSubstr("500 times more within a minute"));
  harness.run_for(minutes(2));
  start_again();
  EXPECT_EQ(harness.events("node_joined").size(), 12u) << "after a pause it is told at once again";
}

TEST(TurnedAwayEvents, NothingIsToldWhereNobodyIsRefused) {
  Harness harness;
  Who node = harness.join("n1");
  harness.heartbeat(node);
  harness.run_for(minutes(2));
  EXPECT_THAT(harness.events(kKind), IsEmpty());
}

}  // namespace
}  // namespace skerry::coordinator
