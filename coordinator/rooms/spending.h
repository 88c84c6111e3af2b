// SPDX-License-Identifier: Apache-2.0
// What runs cost: price × connected seconds / slots, on the lease that holds
// the slot. A run whose budget is spent is paused.
//
// A node is connected from its Hello until its connection ends or it counts as
// lost. A slot without a lease costs idle money, which no run pays. Seconds are
// those of CLOCK_BOOTTIME in this process: while the coordinator is down,
// nothing is charged.
//
// Invariant: each moment of a connected slot is charged once. Sums never
// decrease. They are written every kSaveEvery, unless the last ones are not
// durable yet. So a crash loses at most kSaveEvery of the fleet's price, and
// what it cost while the disk took no write.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/rooms/roster.h"

namespace skerry::coordinator {

// "3.14 dollars", with as many digits as tell it from 0.
std::string human_dollars(double dollars);
// Dollars an hour of one slot; 0: the node's price is unknown.
double slot_price(const Node& node);

class Spending : Room {
 public:
  static constexpr Duration kSaveEvery = std::chrono::seconds(1);
  // A longer pause between two charges is not charged: the machine slept, or
  // its clock jumped.
  static constexpr Duration kLongestCharge = std::chrono::minutes(1);

  // LIFETIME: the other rooms outlive this one.
  Spending(Context& the_context, EventLog& events, Runs& runs, const Roster& roster)
      : Room(the_context), events_(events), runs_(runs), roster_(roster) {}

  // Charges every slot, and pauses the runs whose budget is spent.
  void tick();
  // Charges the nodes that changed in this step, by what they were before.
  void settle();

  double dollars(const Run& run) const;
  double dollars(const Expert& expert) const;
  double idle_dollars() const;
  // Dollars an hour that its leases cost now.
  double rate(const Run& run) const;
  bool is_spent(const Run& run) const;
  // A person changes the run's limits. A run that paused for its budget goes on
  // if there is money again.
  // ON FAILURE: kInvalid if less is given than is spent; nothing changes.
  Result<void> change(Run& run, const pb::RunBudget& budget);

  // Steps that were trained and will not be accepted.
  void lose(const Run& run, Step steps);
  Step lost_steps(const Run& run) const;

  void forget(const RunId& run);
  struct Account {
    Tracked<stored::Spending> record;
    std::vector<double> unsaved = {};  // dollars, by expert
    Step unsaved_steps = 0;            // lost
  };
  const Table<Account>& all() const { return accounts_; }
  // RETURNS: what is wrong; empty if nothing is.
  std::string load(stored::Spending record);

 private:
  // A connected node since it was last charged.
  struct Meter {
    Duration since{};
    double dollars_per_second = 0;                // of each slot
    std::vector<std::optional<ExpertId>> payers;  // by slot; none: it is idle
  };
  std::optional<Meter> read(const Node& node) const;
  void charge(Meter& meter);
  void add(const RunId& run, std::uint32_t index, double dollars);
  Account& account(const RunId& run);
  void save();
  void pause_spent(Run& run);

  EventLog& events_;
  Runs& runs_;
  const Roster& roster_;
  Table<Account> accounts_{context.journal, Kind::kSpending};
  std::map<NodeId, Meter> meters_;
  std::optional<Duration> charged_;  // by the last tick
  Duration next_save_{};
  std::uint64_t saved_batch_ = 0;  // of the last sums that were written
};

}  // namespace skerry::coordinator
