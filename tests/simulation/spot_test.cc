// SPDX-License-Identifier: Apache-2.0
// Traces of spot markets: what is read, and a short one against the hosts.
#include <gmock/gmock.h>

#include "base/log.h"
#include "base/text.h"
#include "daemon/core/core.h"
#include "tests/simulation/dice.h"
#include "tests/simulation/spot_main.h"
#include "tests/simulation/spot_run.h"

namespace skerry::simulation {
namespace {

using testing::HasSubstr;

[[maybe_unused]] const bool kQuiet = [] {
  init_log("simulation_spot_test", LogLevel::kError);
  return true;
}();

SpotTrace parsed(std::string_view content) {
  const Result<SpotTrace> trace = parse_spot_trace(content, "a.csv");
  EXPECT_TRUE(trace.has_value()) << trace.error().message;
  return trace.value_or(SpotTrace{});
}

std::string refused(std::string_view content) {
  const Result<SpotTrace> trace = parse_spot_trace(content, "a.csv");
  EXPECT_FALSE(trace.has_value());
  return trace ? "" : trace.error().message;
}

TEST(SpotTrace, HasMachinesWithTheirTimes) {
  const SpotTrace trace = parsed("# a comment\n0,add,one\r\n\n1500,add,two\n60000,remove,one\n");
  ASSERT_EQ(trace.machines.size(), 2U);
  EXPECT_EQ(trace.machines[0].name, "one");
  EXPECT_EQ(trace.machines[0].removed, Duration(std::chrono::seconds(60)));
  EXPECT_EQ(trace.machines[1].added, std::chrono::milliseconds(1500));
  EXPECT_FALSE(trace.machines[1].removed.has_value());
  EXPECT_EQ(trace.end, std::chrono::seconds(60));
}

TEST(SpotTrace, ANameThatComesBackIsAnotherMachine) {
  const SpotTrace trace = parsed("0,add,one\n1000,remove,one\n2000,add,one");
  ASSERT_EQ(trace.machines.size(), 2U);
  EXPECT_EQ(trace.machines[1].name, "one.2");
}

TEST(SpotTrace, IsCutAtAnEnd) {
  const SpotTrace cut = parsed("0,add,one\n1000,add,two\n1500,remove,one\n3000,add,three\n")
                            .until(std::chrono::milliseconds(1500));
  ASSERT_EQ(cut.machines.size(), 2U);
  EXPECT_FALSE(cut.machines[0].removed.has_value());
  EXPECT_EQ(cut.end, std::chrono::milliseconds(1500));
}

TEST(SpotTrace, AnErrorSaysLineExpectationFindAndRemedy) {
  EXPECT_EQ(refused("0,add,one\n0;add;two"),
            "line 2 of a.csv: expected TIME_MS,add|remove,NAME, found \"0;add;two\"; write a "
            "change a line, such as 0,add,node1");
  EXPECT_THAT(refused("soon,add,one"), HasSubstr("line 1 of a.csv: expected milliseconds"));
  EXPECT_THAT(refused("-1,add,one"), HasSubstr("found \"-1\""));
  EXPECT_THAT(refused("5,add,one\n4,add,two"), HasSubstr("sort the lines by time"));
  EXPECT_THAT(refused("0,give,one"), HasSubstr("expected add or remove, found \"give\""));
  EXPECT_THAT(refused("0,add,One"), HasSubstr("rename the machine"));
  EXPECT_THAT(refused("0,add,one\n1,add,one"), HasSubstr("remove it before it is added again"));
  EXPECT_THAT(refused("0,remove,one"), HasSubstr("add it before it is removed"));
  EXPECT_THAT(refused("# nothing\n"), HasSubstr("a.csv: expected a change a line, found none"));
}

TEST(SpotSpeeds, AreOfMachines) {
  const auto speeds = parse_spot_speeds("one,0.5\ntwo,2\n", "s.csv");
  ASSERT_TRUE(speeds.has_value());
  EXPECT_EQ(speeds->at("one"), 0.5);
  EXPECT_THAT(parse_spot_speeds("one,0", "s.csv").error().message, HasSubstr("expected a speed"));
  EXPECT_THAT(parse_spot_speeds("one", "s.csv").error().message, HasSubstr("NAME,SPEED"));
  EXPECT_THAT(parse_spot_speeds("one,1\none,2", "s.csv").error().message, HasSubstr("line 2"));
}

TEST(SpotCommand, RefusesWhatItDoesNotKnow) {
  const auto status = [](std::vector<std::string> words) { return run_spot_main(words); };
  EXPECT_EQ(status({"--trace", "/nowhere/trace.csv"}), 2);
  EXPECT_EQ(status({"--trace", "a.csv", "--experts", "0"}), 2);
  EXPECT_EQ(status({"--trace", "a.csv", "--experts", "1.5"}), 2);
  EXPECT_EQ(status({"--trace", "a.csv", "--expert", "8"}), 2);
  EXPECT_EQ(status({"--trace"}), 2);
}

// Four machines, two experts; the first two vanish, and two come.
SpotOptions short_run() {
  SpotOptions options;
  options.trace = parsed(
      "0,add,one\n0,add,two\n0,add,three\n0,add,four\n"
      "400000,remove,one\n700000,remove,two\n720000,add,five\n900000,add,six\n");
  options.experts = 2;
  return options;
}

TEST(SpotRun, ATraceHasOneHash) {
  SpotOptions options = short_run();
  options.notice = std::chrono::seconds(30);
  const SpotReport once = run_spot(options);
  const SpotReport again = run_spot(options);
  EXPECT_EQ(json_of(once), json_of(again));
  options.round_seconds = 59;
  EXPECT_NE(run_spot(options).trace_hash, once.trace_hash);
}

TEST(SpotRun, ANoticeSavesWhatARemovalCosts) {
  SpotOptions options = short_run();
  const SpotReport unannounced = run_spot(options);
  EXPECT_GE(unannounced.leases_lost, 1U);
  EXPECT_GT(unannounced.lost_seconds, 5);
  options.notice = std::chrono::seconds(30);
  const SpotReport announced = run_spot(options);
  EXPECT_EQ(announced.leases_lost, 0U);
  EXPECT_EQ(announced.lost_seconds, 0);
  EXPECT_GT(announced.useful_seconds, unannounced.useful_seconds);
}

// One machine trains, another stands by. No step is lost if the commit in
// flight and a last one fit. If only one fits, the one in flight counts.
TEST(SpotRun, TheBytesThatFitGoFirst) {
  using std::chrono::milliseconds;
  using std::chrono::seconds;
  Dice dice(7, "notices");
  std::size_t all_fits = 0, one_fits = 0;
  for (int trial = 0; trial < 100; ++trial) {
    const double removed = dice.real(200, 320);
    SpotOptions options;
    options.trace = parsed(text("0,add,one\n100000,add,two\n",
                                static_cast<std::int64_t>(1000 * removed), ",remove,one\n",
                                static_cast<std::int64_t>(1000 * removed) + 150'000, ",add,three"));
    options.experts = 1;
    options.copies = 1;
    options.round_seconds = dice.real(10, 60);
    options.costs.store = dice.duration(milliseconds(200), seconds(10));
    options.costs.to_coordinator = dice.duration(milliseconds(200), seconds(10));
    options.notice = dice.duration(seconds(3), seconds(40));
    const Duration commit = options.costs.store + options.costs.to_coordinator;
    // Beside a commit's own time: the margin before the end, and a second for
    // messages and heartbeats.
    const Duration left = options.notice - daemon::kNoticeMargin - seconds(1);
    const SpotReport report = run_spot(options);
    SCOPED_TRACE(json_of(report));
    if (left > 2 * commit) {
      ++all_fits;
      EXPECT_EQ(report.lost_seconds, 0);
      EXPECT_EQ(report.leases_lost, 0U);
    } else if (left > commit) {
      ++one_fits;
      // Steps since the snapshot in flight: of its commit, and of the notice.
      EXPECT_LT(report.lost_seconds,
                std::chrono::duration<double>(commit + options.notice).count());
    }
  }
  EXPECT_GT(all_fits, 30U);
  EXPECT_GT(one_fits, 10U);
}

TEST(SpotRun, IdleCardsOfTwoCardMachinesTrainToo) {
  SpotOptions options = short_run();
  options.slots = 2;
  const SpotReport one = run_spot(options);
  options.cards_per_expert = 0;
  const SpotReport both = run_spot(options);
  EXPECT_EQ(both.node_seconds, one.node_seconds);
  EXPECT_GT(both.useful_seconds, 1.5 * one.useful_seconds);
}

TEST(SpotRun, AccountsForEverySecond) {
  SpotOptions options = short_run();
  const SpotReport report = run_spot(options);
  EXPECT_NEAR(report.node_seconds, 400 + 700 + 900 + 900 + 180, 4);
  EXPECT_NEAR(report.could_seconds, 2 * (900 - 25), 4);
  EXPECT_LT(report.useful_seconds + report.lost_seconds + report.reload_seconds,
            report.could_seconds);
  EXPECT_GT(report.useful_seconds, 0.85 * report.could_seconds);
  EXPECT_NEAR(report.answer_seconds, 8, 1);
  EXPECT_EQ(report.samples.size(), 15U);
}

TEST(SpotRun, MoreExpertsThanMachinesTakeTurns) {
  SpotOptions options;
  options.trace = parsed("0,add,one\n0,add,two\n").until(std::chrono::hours(2));
  options.experts = 3;
  const SpotReport report = run_spot(options);
  EXPECT_GE(report.turns, 2U);
  EXPECT_EQ(report.leases_lost, 0U);
  EXPECT_EQ(report.lost_seconds, 0);
}

}  // namespace
}  // namespace skerry::simulation
