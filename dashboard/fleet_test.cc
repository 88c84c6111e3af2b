// SPDX-License-Identifier: Apache-2.0
// What is made of a fleet's state: the list for a person, and metrics.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "dashboard/attention.h"
#include "dashboard/metrics.h"
#include "dashboard/testing/large_fleet.h"

namespace skerry::dashboard {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t kNow = 1'800'000'000'000;

FleetState fleet() {
  FleetState state;
  state.unix_ms = kNow;
  return state;
}

RunState& add_run(FleetState& state, const std::string& name, const std::string& run_state) {
  RunState& run = state.runs["id-" + name];
  run.info.set_id("id-" + name);
  run.info.set_name(name);
  run.info.set_state(run_state);
  run.info.set_reason("because");
  return run;
}

pb::ExpertInfo& add_expert(RunState& run, const std::string& phase) {
  pb::ExpertInfo& expert = *run.info.add_experts();
  expert.set_index(static_cast<std::uint32_t>(run.info.experts_size() - 1));
  expert.set_phase(phase);
  return expert;
}

pb::NodeInfo& add_node(FleetState& state, const std::string& name, const std::string& node_state) {
  pb::NodeInfo& node = state.nodes.emplace_back();
  node.set_id("id-" + name);
  node.set_name(name);
  node.set_state(node_state);
  node.set_last_seen_unix_ms(kNow - 60'000);
  return node;
}

void add_event(FleetState& state, const std::string& kind, std::int64_t ago_ms) {
  pb::Event& event = state.events.emplace_back();
  event.set_kind(kind);
  event.set_run("fashion");
  event.set_expert(2);
  event.set_node("gpu-1");
  event.set_reason("its words");
  event.set_unix_ms(kNow - ago_ms);
}

std::string matters(const FleetState& state) { return matters_for_a_person(state).dump(); }

TEST(Attention, AFleetAtWorkNeedsNobody) {
  FleetState state = fleet();
  RunState& run = add_run(state, "fashion", "running");
  add_expert(run, "training");
  add_expert(run, "waiting");  // its turn comes
  add_run(state, "old", "done");
  add_node(state, "gpu-1", "training");
  add_event(state, "granted", 1'000);
  EXPECT_EQ(matters(state), "[]");
}

TEST(Attention, NamesRunsThatStandStill) {
  FleetState state = fleet();
  add_run(state, "broken", "failed");
  add_run(state, "poor", "paused");
  add_run(state, "lone", "waiting");
  const cli::Json found = matters_for_a_person(state);
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0]["level"], "bad");
  EXPECT_EQ(found[0]["what"], "Run broken failed");
  EXPECT_EQ(found[0]["reason"], "because");
  EXPECT_EQ(found[0]["do"], "skerry run why broken");
  EXPECT_EQ(found[1]["level"], "warning");
}

TEST(Attention, NamesNodesAndExpertsThatFailed) {
  FleetState state = fleet();
  add_expert(add_run(state, "fashion", "running"), "failed");
  add_node(state, "gone", "lost");
  add_node(state, "long-gone", "lost").set_last_seen_unix_ms(kNow - 90'000'000);
  pb::SlotStatus& slot = *add_node(state, "hot", "ready").add_status();
  slot.set_slot(3);
  slot.set_phase(pb::SLOT_FAILED);
  const std::string found = matters(state);
  EXPECT_THAT(found, HasSubstr("Expert 0 of run fashion failed"));
  EXPECT_THAT(found, HasSubstr("Node gone is lost"));
  EXPECT_THAT(found, Not(HasSubstr("long-gone")));
  EXPECT_THAT(found, HasSubstr("Card 3 of node hot failed"));
}

TEST(Attention, ALaterEventEndsAMatter) {
  FleetState state = fleet();
  add_event(state, "object_damaged", 3'000);
  EXPECT_THAT(matters(state), HasSubstr("damaged: fashion expert 2 on gpu-1"));
  add_event(state, "object_mended", 1'000);
  EXPECT_EQ(matters(state), "[]");
  add_event(state, "engine_failed", 500);
  add_event(state, "engine_failed", 400);
  EXPECT_EQ(matters_for_a_person(state).size(), 1U);
  state.unix_ms += 2 * 3'600'000;
  EXPECT_EQ(matters(state), "[]");
}

TEST(Attention, ACoordinatorThatIsAwayComesFirstAndTheListEnds) {
  FleetState state = fleet();
  for (int i = 0; i < 100; ++i) add_run(state, text("run-", i), "failed");
  state.away = "silence";
  state.away_since_unix_ms = kNow;
  const cli::Json found = matters_for_a_person(state);
  EXPECT_EQ(found.size(), kMatters);
  EXPECT_THAT(found[0].dump(), HasSubstr("does not answer since 2027"));
}

TEST(Metrics, HasASeriesForEachExpertOfARunThatGoesOn) {
  FleetState state = fleet();
  RunState& run = add_run(state, "fashion", "running");
  pb::ExpertInfo& expert = add_expert(run, "training");
  expert.set_step(400);
  expert.set_loss(0.25);
  expert.set_gradient_norm(1.5);
  expert.set_checkpoint("hash");
  expert.set_committed_unix_ms(kNow - 12'500);
  expert.set_copies(2);
  add_expert(run, "waiting");
  run.info.set_goodput(0.975);
  run.info.set_dollars(12.5);
  pb::HistoryPoint point;
  point.set_number(7);
  run.track.add(0, point);
  add_expert(add_run(state, "old", "done"), "done").set_step(9);
  add_node(state, "gpu-1", "training");
  const std::string page = metrics_text(state);
  for (const char* line : {
           "skerry_expert_step{run=\"fashion\",expert=\"0\"} 400\n",
           "skerry_expert_step{run=\"fashion\",expert=\"1\"} 0\n",
           "skerry_expert_loss{run=\"fashion\",expert=\"0\"} 0.25\n",
           "skerry_expert_gradient_norm{run=\"fashion\",expert=\"0\"} 1.5\n",
           "skerry_expert_checkpoint_age_seconds{run=\"fashion\",expert=\"0\"} 12.5\n",
           "skerry_expert_copies{run=\"fashion\",expert=\"0\"} 2\n",
           "skerry_expert_commits_total{run=\"fashion\",expert=\"0\"} 7\n",
           "skerry_run_goodput_ratio{run=\"fashion\"} 0.975\n",
           "skerry_run_cost_usd_total{run=\"fashion\"} 12.5\n",
           "skerry_run_state{run=\"old\",state=\"done\"} 1\n",
           "skerry_nodes{state=\"training\"} 1\n",
           "skerry_nodes{state=\"lost\"} 0\n",
           "skerry_coordinator_up 1\n",
       })
    EXPECT_THAT(page, HasSubstr(line));
  EXPECT_THAT(page, Not(HasSubstr("skerry_expert_step{run=\"old\"")));
  EXPECT_THAT(page, Not(HasSubstr("skerry_expert_loss{run=\"fashion\",expert=\"1\"")));
}

TEST(Metrics, AThousandNodesFitAMegabyte) {
  const std::string page = metrics_text(large_fleet(1000));
  EXPECT_LE(page.size(), 1'000'000U);
  EXPECT_THAT(page, HasSubstr("skerry_nodes{state=\"training\"} 1000\n"));
}

TEST(Metrics, LabelsAreEscaped) {
  FleetState state = fleet();
  add_run(state, "a\"b\\c\nd", "running");
  EXPECT_THAT(metrics_text(state), HasSubstr(R"(skerry_run_cost_usd_total{run="a\"b\\c?d"} 0)"));
}

}  // namespace
}  // namespace skerry::dashboard
