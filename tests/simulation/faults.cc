// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/faults.h"

#include <numeric>

#include "tests/simulation/dice.h"

namespace skerry::simulation {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr double kTakesPart = 0.6;
constexpr double kOneKind = 0.15;  // of bursts

std::size_t draw(Dice& dice, const std::vector<double>& weights) {
  double drawn = dice.real(0, std::accumulate(weights.begin(), weights.end(), 0.0));
  for (std::size_t kind = 0; kind < weights.size(); ++kind) {
    drawn -= weights[kind];
    if (drawn <= 0 && weights[kind] > 0) return kind;
  }
  return 0;
}

}  // namespace

std::vector<PlannedFault> plan_faults(std::uint64_t seed, const std::vector<double>& weights,
                                      Duration from, Duration until) {
  Dice dice(seed, "plan");
  std::vector<double> drawn = weights;
  for (double& weight : drawn) weight = dice.chance(kTakesPart) ? weight : 0;
  if (std::accumulate(drawn.begin(), drawn.end(), 0.0) == 0) drawn = weights;
  std::vector<PlannedFault> plan;
  for (Duration at = from; at < until;) {
    const std::uint64_t burst = dice.between(1, 8);
    const bool is_one_kind = dice.chance(kOneKind);
    const std::size_t kind = draw(dice, drawn);
    for (std::uint64_t i = 0; i < burst && at < until; ++i) {
      plan.push_back(
          {static_cast<std::uint32_t>(plan.size()), at, is_one_kind ? kind : draw(dice, drawn)});
      at += dice.duration({}, seconds(5));
    }
    at += dice.duration(seconds(1), seconds(20));
  }
  return plan;
}

}  // namespace skerry::simulation
