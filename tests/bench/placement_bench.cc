// SPDX-License-Identifier: Apache-2.0
// How long the coordinator's scheduler takes to train all experts on fleets of
// unlike cards, beside a lower bound that no schedule can beat. The last line
// is JSON.
//
// The bound looks at each memory size m: at the jobs that need m or more, and
// at the cards that have m or more. It is the largest of two ratios: all work
// by all speed, and, for every i, the i largest works by the i fastest speeds.
//
// Rounds take 60 s. A lease moves at a commit only, and a move costs the
// seconds that are given.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <queue>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/text.h"
#include "coordinator/rooms/scheduler.h"

namespace skerry::coordinator {
namespace {

constexpr double kRound = 60;
constexpr double kGigabyte = 1e9;
constexpr double kNewest = 0.25;  // as Speeds weighs the last measurement

struct Card {
  const char* name;
  double gigabytes;
  double speed;  // as a share of an A100's
};
constexpr Card kCards[] = {{"T4", 16, .10},      {"3090", 24, .30}, {"4090", 24, .62},
                           {"A10", 24, .28},     {"L40S", 48, .80}, {"A100-40", 40, .95},
                           {"A100-80", 80, 1.0}, {"H100", 80, 1.9}, {"H200", 141, 2.1},
                           {"V100", 16, .33}};
constexpr double kA100 = 1e14;

struct Job {
  double work = 0;
  double gigabytes = 0;
  std::size_t kind = 0;
};

struct Fleet {
  std::vector<Card> cards;
  std::vector<Job> jobs;
};

Fleet draw(std::mt19937_64& dice) {
  const auto between = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(dice);
  };
  const auto pick = [&](auto... each) {
    const double all[] = {static_cast<double>(each)...};
    return all[static_cast<std::size_t>(between(0, sizeof...(each) - 1))];
  };
  Fleet fleet;
  const int cards = between(3, 24);
  const int experts = static_cast<int>(pick(4, 8, 8, 16, 24));
  for (int i = 0; i < cards; ++i)
    fleet.cards.push_back(kCards[static_cast<std::size_t>(between(0, std::size(kCards) - 1))]);
  const double gigabytes = pick(10, 20, 30);
  const double work = std::uniform_real_distribution(.9, 1.1)(dice) * pick(2, 6, 12) * 3600 * kA100;
  const bool two_runs = between(1, 100) <= 40;
  for (int i = 0; i < experts; ++i) {
    if (!two_runs) {
      fleet.jobs.push_back({work, gigabytes, 0});
    } else if (i % 2 == 1) {
      fleet.jobs.push_back({work, 10, 0});
    } else {
      fleet.jobs.push_back({2.5 * work, 30, 1});
    }
  }
  return fleet;
}

// RETURNS: seconds; none: a job fits no card.
std::optional<double> lower_bound(const Fleet& fleet) {
  double bound = 0;
  std::vector<double> sizes = {0};
  for (const Job& job : fleet.jobs) sizes.push_back(job.gigabytes);
  for (const double size : sizes) {
    std::vector<double> works, speeds;
    for (const Job& job : fleet.jobs) {
      if (job.gigabytes >= size) works.push_back(job.work);
    }
    for (const Card& card : fleet.cards) {
      if (card.gigabytes >= size) speeds.push_back(card.speed * kA100);
    }
    if (works.empty()) continue;
    if (speeds.empty()) return std::nullopt;
    std::ranges::sort(works, std::greater<>());
    std::ranges::sort(speeds, std::greater<>());
    double work = 0, speed = 0;
    for (std::size_t i = 0; i < works.size(); ++i) {
      work += works[i];
      if (i >= speeds.size()) continue;
      speed += speeds[i];
      bound = std::max(bound, work / speed);
    }
    for (std::size_t i = works.size(); i < speeds.size(); ++i) speed += speeds[i];
    bound = std::max(bound, work / speed);
  }
  return bound;
}

struct Outcome {
  double makespan = 0;
  int misfits = 0;
  int moves = 0;  // beside turns
  double expert_hours = 0;
};

class Training {
 public:
  Training(const Fleet& fleet, double move_seconds, double noise, std::uint64_t seed)
      : fleet_(fleet), noise_(noise), dice_(seed) {
    jobs_.resize(2);
    for (SchedulableJob& job : jobs_) job.needs = "more";
    for (std::size_t c = 0; c < fleet.cards.size(); ++c) {
      const std::string name = text("n", c + 100);
      nodes_.push_back({.id = NodeId(name), .name = name});
      nodes_.back().slots.push_back(
          {0, static_cast<std::uint64_t>(fleet.cards[c].gigabytes * kGigabyte)});
      card_of_[nodes_.back().id] = c;
      for (std::size_t kind = 0; kind < jobs_.size(); ++kind) {
        const bool fits = std::ranges::all_of(fleet.jobs, [&](const Job& job) {
          return job.kind != kind || job.gigabytes <= fleet.cards[c].gigabytes;
        });
        jobs_[kind].speed.push_back(fits ? fleet.cards[c].speed * kA100 : 0);
      }
    }
    for (std::size_t e = 0; e < fleet.jobs.size(); ++e) {
      SchedulableExpert expert;
      expert.id = {RunId("r-1"), static_cast<std::uint32_t>(e)};
      expert.run_name = "run";
      expert.job = fleet.jobs[e].kind;
      expert.work = fleet.jobs[e].work;
      expert.start_seconds = move_seconds;
      experts_.push_back(expert);
    }
    states_.resize(experts_.size());
  }

  Outcome run() {
    carry_out();
    while (!due_.empty()) {
      const auto [time, e, grant] = due_.top();
      due_.pop();
      if (grant != states_[e].grant || !experts_[e].holder) continue;
      now_ = time;
      commit(e);
      carry_out();
    }
    outcome_.makespan = now_;
    for (const SchedulableExpert& expert : experts_) {
      if (expert.wanted) outcome_.makespan = std::numeric_limits<double>::infinity();
    }
    return outcome_;
  }

 private:
  struct State {
    double granted = 0;
    double trained_to = 0;  // time up to which its work is counted
    bool yields = false;
    std::uint64_t grant = 0;
  };
  using Due = std::tuple<double, std::size_t, std::uint64_t>;  // time, expert, grant

  std::size_t card(std::size_t e) const { return card_of_.at(experts_[e].holder->node); }
  double speed(std::size_t e) const { return fleet_.cards[card(e)].speed * kA100; }

  void await(std::size_t e) {
    const double end = states_[e].trained_to + experts_[e].work / speed(e);
    due_.push({std::min(states_[e].trained_to + kRound, end), e, states_[e].grant});
  }

  void commit(std::size_t e) {
    SchedulableExpert& expert = experts_[e];
    const double done = (now_ - states_[e].trained_to) * speed(e);
    expert.work = std::max(0.0, expert.work - done);
    states_[e].trained_to = now_;
    ++expert.rounds_in_turn;
    if (noise_ > 0) {
      double& known = jobs_[expert.job].speed[card(e)];
      const double seen = speed(e) * std::uniform_real_distribution(1 - noise_, 1 + noise_)(dice_);
      known += kNewest * (seen - known);
    }
    if (expert.work < 1e-6 * kA100) expert.wanted = false;
    if (!expert.wanted || states_[e].yields) {
      outcome_.expert_hours += (now_ - states_[e].granted) / 3600;
      expert.holder.reset();
      return;
    }
    await(e);
  }

  void carry_out() {
    for (std::size_t e = 0; e < experts_.size(); ++e) {
      experts_[e].seconds_in_turn = now_ - states_[e].granted;
      experts_[e].yields = states_[e].yields;
    }
    const Schedule plan = schedule(experts_, nodes_, jobs_);
    for (State& state : states_) state.yields = false;
    for (const Yield& each : plan.yields) states_[each.expert.index].yields = true;
    for (const Grant& each : plan.grants) {
      const std::size_t e = each.expert.index;
      SchedulableExpert& expert = experts_[e];
      expert.holder = each.slot;
      outcome_.misfits += fleet_.jobs[e].gigabytes > fleet_.cards[card(e)].gigabytes;
      outcome_.moves += expert.reserved == each.slot;
      expert.rounds_in_turn = 0;
      State& state = states_[e];
      state.granted = now_;
      state.trained_to = now_ + expert.start_seconds;
      state.yields = false;
      ++state.grant;
      await(e);
    }
    for (SchedulableExpert& expert : experts_) expert.reserved.reset();
    for (const Reservation& each : plan.reservations)
      experts_[each.expert.index].reserved = each.slot;
    if (!plan.grants.empty()) carry_out();
  }

  const Fleet& fleet_;
  double noise_;
  std::mt19937_64 dice_;
  double now_ = 0;
  std::vector<SchedulableExpert> experts_;
  std::vector<State> states_;
  std::vector<SchedulableNode> nodes_;
  std::vector<SchedulableJob> jobs_;
  std::map<NodeId, std::size_t> card_of_;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
  Outcome outcome_;
};

// ---- One schedule of a large fleet

std::string words(const Schedule& plan) {
  std::string all;
  for (const Why& why : plan.why) all += why.reason + "\n";
  for (const Grant& grant : plan.grants) all += grant.slot.node.str() + "\n";
  return all;
}

double schedule_ms(std::size_t size, bool& is_same) {
  std::mt19937_64 dice(1);
  std::vector<SchedulableExpert> experts;
  std::vector<SchedulableNode> nodes;
  std::vector<SchedulableJob> jobs(2, {.speed = {}, .needs = "20 GB"});
  for (std::size_t i = 0; i < size; ++i) {
    const std::string name = text("n", i + size);
    nodes.push_back({.id = NodeId(name), .name = name, .bytes_per_second = 1e8});
    nodes.back().slots.push_back({0, 24});
    for (SchedulableJob& job : jobs)
      job.speed.push_back(kA100 * std::uniform_real_distribution(.1, 2.1)(dice));
    SchedulableExpert expert;
    expert.id = {RunId("r-1"), static_cast<std::uint32_t>(i)};
    expert.run_name = "run";
    expert.job = i % 2;
    expert.work = kA100 * std::uniform_real_distribution(1e3, 1e5)(dice);
    expert.start_seconds = 10;
    expert.bytes = 2e9;
    experts.push_back(expert);
  }
  double slowest = 0;
  for (const bool held : {false, true}) {
    if (held) {
      for (std::size_t i = 0; i < size; ++i) {
        experts[i].holder = SlotId{nodes[i].id, 0};
        experts[i].rounds_in_turn = 3;
      }
    }
    double fastest = std::numeric_limits<double>::infinity();
    std::string before;
    for (int i = 0; i < 9; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      const Schedule plan = schedule(experts, nodes, jobs);
      const std::chrono::duration<double, std::milli> took =
          std::chrono::steady_clock::now() - begin;
      fastest = std::min(fastest, took.count());
      const std::string now = words(plan);
      if (!before.empty() && now != before) is_same = false;
      before = now;
    }
    slowest = std::max(slowest, fastest);
  }
  return slowest;
}

struct Sum {
  double mean = 0, worst = 0, moves = 0, hours = 0;
  int misfits = 0, fleets = 0;
};

Sum over_fleets(int fleets, double move_seconds, double noise) {
  Sum sum;
  std::mutex mutex;
  std::atomic<int> next = 0;
  const auto work = [&] {
    for (int i = next++; i < fleets; i = next++) {
      std::mt19937_64 dice(static_cast<std::uint64_t>(i));
      const Fleet fleet = draw(dice);
      const std::optional<double> bound = lower_bound(fleet);
      if (!bound) continue;
      const Outcome outcome = Training(fleet, move_seconds, noise, dice()).run();
      const std::lock_guard lock(mutex);
      const double ratio = outcome.makespan / *bound;
      sum.mean += ratio;
      sum.worst = std::max(sum.worst, ratio);
      sum.misfits += outcome.misfits;
      sum.moves += outcome.moves;
      sum.hours += outcome.expert_hours;
      ++sum.fleets;
    }
  };
  std::vector<std::jthread> threads;
  for (unsigned i = 1; i < std::thread::hardware_concurrency(); ++i) threads.emplace_back(work);
  work();
  threads.clear();
  sum.mean /= std::max(sum.fleets, 1);
  std::printf(
      "moves of %3.0f s%s: %d fleets, makespan / lower bound mean %.3f worst %.3f; "
      "%.0f moves beside turns in %.0f expert-hours; %d misfits\n",
      move_seconds, noise > 0 ? ", rates ± 10 %" : "", sum.fleets, sum.mean, sum.worst, sum.moves,
      sum.hours, sum.misfits);
  std::fflush(stdout);
  return sum;
}

}  // namespace
}  // namespace skerry::coordinator

int main(int argc, char** argv) {
  using namespace skerry::coordinator;
  CLI::App app("Measures the scheduler on drawn fleets of unlike cards.");
  int fleets = 1000;
  app.add_option("--fleets", fleets, "drawn fleets")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  CLI11_PARSE(app, argc, argv);
  bool is_same = true;
  const double milliseconds = schedule_ms(1000, is_same);
  std::printf("1,000 experts on 1,000 nodes: %.2f ms, %s\n", milliseconds,
              is_same ? "the same plan each time" : "ANOTHER PLAN each time");
  const Sum quick = over_fleets(fleets, 30, 0);
  const Sum slow = over_fleets(fleets, 120, 0);
  const Sum noisy = over_fleets(fleets, 30, 0.1);
  const nlohmann::ordered_json line = {
      {"mean_ratio", quick.mean},
      {"worst_ratio", quick.worst},
      {"mean_ratio_120", slow.mean},
      {"misfits", quick.misfits + slow.misfits + noisy.misfits},
      {"schedule_ms", milliseconds},
      {"same", is_same},
      {"moves_per_expert_hour", noisy.moves / std::max(noisy.hours, 1e-9)}};
  std::printf("%s\n", line.dump().c_str());
  return is_same ? 0 : 1;
}
