// SPDX-License-Identifier: Apache-2.0
// One fault at a time, at a time drawn from the seed, on clocks that drift: how
// long until it is noticed and repaired.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <utility>

#include "base/text.h"
#include "tests/simulation/cluster.h"

namespace skerry::simulation {
namespace {

constexpr std::uint64_t kSeeds = 40 / SKERRY_SEED_DIVISOR;
constexpr double kDrift = 0.005;
constexpr Duration kSlow = seconds(1);  // a chunk: a checkpoint takes about as long as a round

class Bounds : public testing::TestWithParam<std::uint64_t>, public Watcher {
 public:
  void coordinator_stepped(const CoordinatorStep& step) override {
    if (step.event != nullptr && std::holds_alternative<coordinator::Closed>(*step.event) &&
        !closed_)
      closed_ = cluster().world().timeline.now();
    for (const coordinator::ExpertView& view : step.experts) {
      if (view.id.index == watched_ && view.lease && !view.lease->lapsed && view.epoch > epoch_ &&
          !regranted_) {
        regranted_ = cluster().world().timeline.now();
        regranted_at_ = view.head_step;
        old_holder_may_commit_ =
            victim_ != nullptr && victim_->core() != nullptr && may_commit(*victim_->core());
      }
    }
  }

  // What a lease's holder has trained beyond the head when the lease ends is
  // lost.
  void daemon_stepped(const DaemonStep& step) override {
    const daemon::SlotView& slot = step.slots.at(0);
    const daemon::SlotView before = std::exchange(held_before_[step.name], slot);
    if (!before.has_lease || (slot.has_lease && slot.expert == before.expert)) return;
    ++ended_leases_;
    const Step head = cluster().expert(before.expert.index).head_step;
    dropped_steps_ += before.step - std::min(before.step, head);
  }
  void daemon_drains(const std::string&, const daemon::SlotView& slot, Step trained) override {
    if (slot.expert.index == watched_) trained_ = trained;
  }

 protected:
  static bool may_commit(const daemon::Core& core) {
    bool may = false;
    for (const daemon::SlotView& slot : core.slots())
      may = may || (slot.has_lease && slot.may_commit);
    return may;
  }
  Dice dice() const { return {GetParam(), "bounds"}; }

  // `spares` nodes more than experts, all of them training or waiting, some
  // commits in.
  void begin(std::uint32_t experts, std::uint32_t spares) {
    Dice chance(GetParam(), "bounds of");
    ClusterOptions options;
    options.seed = GetParam();
    options.experts = experts;
    options.steps = 4000;
    options.round_steps = chance.between(5, 20);
    options.offline_rounds = 1000;
    options.coordinator_drift = chance.real(-kDrift, kDrift);
    for (std::uint32_t i = 0; i < experts + spares; ++i) {
      options.nodes.push_back({text("n", i), 1, milliseconds(100), chance.real(-kDrift, kDrift)});
    }
    cluster_ = std::make_unique<Cluster>(options);
    cluster().world().watchers.push_back(this);
    cluster().start();
    cluster().start_daemons();
    const auto all_committed = [&] {
      for (std::uint32_t i = 0; i < experts; ++i) {
        if (cluster().expert(i).head_step == 0) return false;
      }
      return true;
    };
    ASSERT_TRUE(cluster().run_until(all_committed, seconds(60)));
    cluster().run_for(seconds(10) + chance.duration({}, seconds(2)));
    epoch_ = cluster().expert(watched_).epoch;
    victim_ = cluster().holder(watched_);
    closed_.reset();
    regranted_.reset();
    ASSERT_NE(victim_, nullptr);
  }
  Cluster& cluster() { return *cluster_; }
  void expect_sound() {
    for (const Violation& violation : cluster().invariants().violations())
      ADD_FAILURE() << violation.id << ": " << violation.what;
  }

  std::unique_ptr<Cluster> cluster_;
  ExpertIndex watched_ = 0;
  DaemonMachine* victim_ = nullptr;
  Epoch epoch_;
  std::optional<Duration> closed_;
  std::optional<Duration> regranted_;
  Step regranted_at_ = 0;
  std::map<std::string, daemon::SlotView> held_before_;  // by daemon
  std::uint64_t ended_leases_ = 0;
  Step dropped_steps_ = 0;
  Step trained_ = 0;  // by the victim, when it was told to drain
  bool old_holder_may_commit_ = false;
};

TEST_P(Bounds, L1AKilledNodesExpertIsReassignedASecondAfterItsConnectionClosed) {
  begin(2, 1);
  victim_->kill(DaemonMachine::Death::kKilled);
  ASSERT_TRUE(cluster().run_until([&] { return regranted_.has_value(); }, seconds(20)));
  ASSERT_TRUE(closed_.has_value());
  EXPECT_GE(*regranted_ - *closed_, milliseconds(990));
  EXPECT_LE(*regranted_ - *closed_, milliseconds(1300));
  expect_sound();
}

// Never while the old holder may still commit: its own margin is wider than two
// clocks drift apart (S1).
TEST_P(Bounds, L1ASilentNodesExpertIsReassignedWithinLeaseAndGrace) {
  begin(2, 1);
  const Duration silent = cluster().world().timeline.now();
  // Nobody is told that the connection is gone: only the silence counts.
  Weather& weather = cluster().world().network.weather(victim_->name());
  weather.to_server_cut = true;
  weather.to_client_cut = GetParam() % 2 == 0;
  ASSERT_TRUE(cluster().run_until([&] { return regranted_.has_value(); }, seconds(20)));
  EXPECT_LE(*regranted_ - silent, seconds(6) + seconds(2) + milliseconds(500));
  EXPECT_LE(*regranted_ - silent, seconds(12));
  EXPECT_FALSE(old_holder_may_commit_);
  expect_sound();
}

TEST_P(Bounds, S1NobodyMayCommitAnyMoreWhenAPausedNodesExpertIsGivenAway) {
  begin(2, 1);
  victim_->pause(seconds(30));
  cluster().run_for(milliseconds(1));
  ASSERT_TRUE(cluster().run_until([&] { return regranted_.has_value(); }, seconds(20)));
  // The stopped core's clock has not moved; asked at this moment it would see
  // its lease gone.
  ASSERT_TRUE(cluster().run_until([&] { return !victim_->is_paused(); }, seconds(60)));
  EXPECT_FALSE(victim_->core() != nullptr && may_commit(*victim_->core()));
  cluster().run_for(seconds(5));
  expect_sound();
}

// Half of the fleet at once, as spot markets do it: early ends are bounded, the
// others run into their leases.
TEST_P(Bounds, L1HalfOfTheFleetIsReassignedWithin15Seconds) {
  begin(4, 4);
  const Duration gone = cluster().world().timeline.now();
  std::set<NodeId> dead;
  for (ExpertIndex i = 0; i < 4; ++i) {
    DaemonMachine* holder = cluster().holder(i);
    ASSERT_NE(holder, nullptr);
    dead.insert(holder->id());
    holder->kill(dice().chance(0.5) ? DaemonMachine::Death::kKilled
                                    : DaemonMachine::Death::kVanished);
  }
  const auto all_held = [&] {
    for (ExpertIndex i = 0; i < 4; ++i) {
      const auto lease = cluster().expert(i).lease;
      if (!lease || lease->lapsed || dead.contains(lease->node)) return false;
    }
    return true;
  };
  ASSERT_TRUE(cluster().run_until(all_held, seconds(60)));
  EXPECT_LE(cluster().world().timeline.now() - gone, seconds(15));
  expect_sound();
}

TEST_P(Bounds, L4ARestartedCoordinatorCostsNoHealthyNodeItsLeaseOrAStep) {
  begin(3, 1);
  std::vector<Epoch> epochs;
  std::vector<std::uint64_t> engines;
  for (ExpertIndex i = 0; i < 3; ++i) epochs.push_back(cluster().expert(i).epoch);
  for (std::size_t i = 0; i < cluster().daemons(); ++i)
    engines.push_back(cluster().daemon(i).engine_starts());
  cluster().coordinator().kill();
  cluster().run_for(dice().duration(milliseconds(100), seconds(30)));
  const std::uint64_t commits = cluster().invariants().commits();
  cluster().coordinator().start();
  const Duration started = cluster().world().timeline.now();
  ASSERT_TRUE(
      cluster().run_until([&] { return cluster().invariants().commits() > commits; }, seconds(60)));
  EXPECT_LE(cluster().world().timeline.now() - started, seconds(5));
  cluster().run_for(seconds(20));
  for (ExpertIndex i = 0; i < 3; ++i)
    EXPECT_EQ(cluster().expert(i).epoch, epochs[i]) << "expert " << i;
  for (std::size_t i = 0; i < cluster().daemons(); ++i) {
    EXPECT_EQ(cluster().daemon(i).engine_starts(), engines[i])
        << "an engine of " << cluster().daemon(i).name();
  }
  expect_sound();
}

// Its loop or its disk stands still for longer than a lease: its own fault, and
// nobody else's loss.
TEST_P(Bounds, L4ASlowCoordinatorCostsNoHealthyNodeItsLease) {
  begin(3, 1);
  std::vector<Epoch> epochs;
  for (ExpertIndex i = 0; i < 3; ++i) epochs.push_back(cluster().expert(i).epoch);
  if (GetParam() % 2 == 0) {
    cluster().coordinator().pause(dice().duration(seconds(1), seconds(30)));
  } else {
    cluster().coordinator().disk().pace.state_min = cluster().coordinator().disk().pace.state_max =
        seconds(12);
  }
  cluster().run_for(seconds(60));
  for (ExpertIndex i = 0; i < 3; ++i)
    EXPECT_EQ(cluster().expert(i).epoch, epochs[i]) << "expert " << i;
  expect_sound();
}

// Whatever is on its way at that moment: the lease ends with the commit of the
// last step.
TEST_P(Bounds, ADrainLosesNoStep) {
  begin(1, 1);
  cluster().world().network.chunk_time = kSlow;
  cluster().run_for(seconds(5) + dice().duration({}, seconds(5)));
  victim_->drain();
  ASSERT_TRUE(cluster().run_until([&] { return regranted_.has_value(); }, seconds(60)));
  EXPECT_GT(trained_, 0U);
  EXPECT_GE(regranted_at_, trained_);
  expect_sound();
}

// One node, two experts, rounds shorter than a commit takes: what was trained
// when a turn ends is in its last commit.
TEST_P(Bounds, ATurnLosesNoStep) {
  ClusterOptions options;
  options.seed = GetParam();
  options.experts = 2;
  options.steps = 400;
  options.round_steps = dice().between(5, 20);
  options.turn_rounds = 2;
  options.nodes.push_back({"n", 1, milliseconds(100), dice().real(-kDrift, kDrift)});
  cluster_ = std::make_unique<Cluster>(options);
  cluster().world().watchers.push_back(this);
  cluster().start();
  cluster().start_daemons();
  const auto both_begun = [&] {
    return cluster().expert(0).head_step > 0 && cluster().expert(1).head_step > 0;
  };
  ASSERT_TRUE(cluster().run_until(both_begun, seconds(60)));
  cluster().world().network.chunk_time = kSlow;
  const auto done = [&] { return cluster().is_done(); };
  ASSERT_TRUE(cluster().run_until(done, seconds(600)));
  EXPECT_GE(ended_leases_, 4U);
  EXPECT_EQ(dropped_steps_, 0U);
  expect_sound();
}

TEST_P(Bounds, L2ANodeThatRejoinsWorksAgainWithinTenSeconds) {
  begin(2, 0);
  victim_->kill(dice().chance(0.5) ? DaemonMachine::Death::kKilled
                                   : DaemonMachine::Death::kVanished);
  cluster().run_for(dice().duration(milliseconds(10), seconds(30)));
  const std::uint64_t engines = victim_->engine_starts();
  const Duration back = cluster().world().timeline.now();
  victim_->start(cluster().token());
  ASSERT_TRUE(cluster().run_until([&] { return victim_->engine_starts() > engines; }, seconds(60)));
  EXPECT_LE(cluster().world().timeline.now() - back, seconds(10));
  expect_sound();
}

TEST_P(Bounds, L6ANodeWhoseDiskWasFullResumesWithinThirtySeconds) {
  begin(1, 0);
  victim_->disk().kept.is_full = true;
  cluster().run_for(dice().duration(seconds(5), seconds(60)));
  const Step before = cluster().expert(0).head_step;
  victim_->disk().kept.is_full = false;
  const Duration room = cluster().world().timeline.now();
  ASSERT_TRUE(
      cluster().run_until([&] { return cluster().expert(0).head_step > before; }, seconds(120)));
  EXPECT_LE(cluster().world().timeline.now() - room, seconds(30));
  expect_sound();
}

INSTANTIATE_TEST_SUITE_P(Seed, Bounds, testing::Range<std::uint64_t>(1, kSeeds + 1));

// Without faults: what a run spends beyond its budget is at most a round of the
// fleet, and the second that its commits take.
TEST_P(Bounds, ABudgetIsOverspentByAtMostARoundOfTheFleet) {
  Dice chance(GetParam(), "budget");
  ClusterOptions options;
  options.seed = GetParam();
  options.experts = 3;
  options.steps = 100'000;
  options.round_steps = chance.between(10, 40);
  options.coordinator_drift = chance.real(-kDrift, kDrift);
  options.raises_budget = false;
  double fleet = 0;  // dollars a second
  for (std::uint32_t i = 0; i < options.experts; ++i) {
    options.nodes.push_back({text("n", i), 1, milliseconds(100), chance.real(-kDrift, kDrift)});
    options.nodes.back().price = chance.real(0.1, 3);
    fleet += options.nodes.back().price / 3600;
  }
  options.budget_dollars = 60 * fleet;
  Cluster cluster(options);
  cluster.start();
  cluster.start_daemons();
  const auto has_ended = [&] {
    if (cluster.run_state() != "paused") return false;
    const auto experts = cluster.coordinator().core()->experts();
    return std::ranges::none_of(experts, [](const auto& each) { return each.lease.has_value(); });
  };
  ASSERT_TRUE(cluster.run_until(has_ended, seconds(300)));
  const double round = 0.1 * static_cast<double>(options.round_steps) * (1 + kDrift);
  const double spent = cluster.money().spent(cluster.run());
  EXPECT_GE(spent, options.budget_dollars);
  EXPECT_LE(spent, options.budget_dollars + fleet * (round + 1));
  EXPECT_TRUE(cluster.is_sound());
}

}  // namespace
}  // namespace skerry::simulation
