// SPDX-License-Identifier: Apache-2.0
// What runs cost, and what they must not cost, from the messages that the
// coordinator answered and the leases that it shows. It keeps its own account
// on the coordinator's clock.
//
// - money: after each tick every expert's sum is that of its leases: price ×
//   connected seconds / slots, within 0.1 %. A restart loses no sum that was
//   durable, and counts no second twice.
// - budget: once a run has spent its budget, all its leases are asked back in
//   the same step, and it is granted nothing.
// - price: no lease is granted on a node above the run's max_node_price, and no
//   grant makes a run cost more an hour than it may.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>

#include "tests/simulation/world.h"

namespace skerry::simulation {

class MoneyRules final : public Watcher {
 public:
  // `boot`: the coordinator's clock.
  MoneyRules(World& world, std::function<Duration()> boot)
      : world_(world), boot_(std::move(boot)) {}

  void coordinator_started(const coordinator::Core& core, const Durable& durable) override;
  void coordinator_stopped() override;
  void coordinator_restored(const Durable& durable) override;
  void coordinator_stepped(const CoordinatorStep& step) override;

  // Dollars that the run's leases have cost.
  double spent(const RunId& run) const;

 private:
  struct Node {
    coordinator::ConnectionId connection;  // that was greeted; empty: none
    double price = 0;
    std::size_t slots = 0;
    bool present = false;
    double slot_price() const { return slots == 0 ? 0 : price / static_cast<double>(slots); }
    bool is_connected() const { return present && !connection.empty(); }
  };
  struct Limits {
    double dollars = 0, dollars_per_hour = 0, max_node_price = 0;
    bool is_active = false;
  };
  void pass(Duration now);
  void take_word(const CoordinatorStep& step, const coordinator::Received& event);
  void take_writes(const CoordinatorStep& step);
  void compare(const std::vector<coordinator::ExpertView>& experts);
  void look_at_budgets(const std::vector<coordinator::ExpertView>& experts);
  void look_at_grants(const std::vector<coordinator::ExpertView>& experts);
  double price_of(const coordinator::LeaseView& lease) const;

  World& world_;
  std::function<Duration()> boot_;
  Duration last_{};
  bool runs_ = false;
  std::map<std::string, Node> nodes_;  // by id
  std::map<RunId, Limits> limits_;
  std::set<RunId> over_;  // runs that had spent their budget at the last tick
  std::map<ExpertId, coordinator::LeaseView> leases_;  // held, not lapsed
  std::map<ExpertId, Epoch> epochs_;
  std::map<ExpertId, double> spent_;
  std::map<std::uint64_t, std::map<ExpertId, double>> written_;  // by batch
  std::map<ExpertId, double> durable_;
};

}  // namespace skerry::simulation
