// SPDX-License-Identifier: Apache-2.0
// One simulated cluster: a coordinator, a person's client and any number of
// daemons, all cores of the product, on one virtual clock from one seed. Tests
// and the fault schedule drive it; Invariants watch it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/simulation/admin_client.h"
#include "tests/simulation/coordinator_machine.h"
#include "tests/simulation/daemon_machine.h"
#include "tests/simulation/gossip_ground.h"
#include "tests/simulation/idle_rules.h"
#include "tests/simulation/invariants.h"
#include "tests/simulation/lease_rules.h"
#include "tests/simulation/money_rules.h"
#include "tests/simulation/world.h"

namespace skerry::simulation {

struct ClusterOptions {
  std::uint64_t seed = 1;
  Trace::Keep keep = Trace::Keep::kLast;
  coordinator::Config config;
  struct Node {
    std::string name;
    std::uint32_t slots = 1;
    Duration step_time = milliseconds(100);
    double drift = 0;
    std::string host = {};  // empty: one of its own
    bool listens = true;    // false: behind NAT
    std::string device = "cpu";
    std::uint64_t memory_bytes = std::uint64_t{1} << 30;
    double price = 0;       // dollars an hour; 0: unknown
    double gain = 0.85;     // as Engines::Settings has it
    Duration idle_limit{};  // without work, before its --idle-exec; 0: it has none
  };
  std::vector<Node> nodes;
  std::uint32_t cards_per_expert = 1;  // 0: as many as gain
  std::uint32_t experts = 2;
  Step steps = 20;
  Step round_steps = 5;
  double round_seconds = 0;  // where round_steps is 0
  std::uint32_t turn_rounds = 5;
  std::uint32_t offline_rounds = 20;
  std::uint32_t checkpoints_kept = 2;
  std::uint32_t copies = 1;
  double budget_dollars = 0, dollars_per_hour = 0, max_node_price = 0;  // 0: no limit
  bool raises_budget = true;  // the person gives more where it is spent
  double coordinator_drift = 0;
  std::uint64_t non_finite_one_in = 0;
  bool steady = false;         // every delay and write takes the same time: for stories
  bool gossips = true;         // false: nobody does; any holder of an object serves it
  bool tells_records = false;  // lines for what each learns from records
};

inline constexpr char kRunName[] = "demo";

class Cluster {
 public:
  explicit Cluster(ClusterOptions options);

  // The coordinator, the person's client, the dataset and the run; then every
  // daemon.
  void start();
  void start_daemons();
  // Until the dataset is there and the run was created. REQUIRES: start().
  void run_for(Duration time);
  // True once the condition holds, at the latest at `limit` from now; stops at
  // the first violation.
  bool run_until(const std::function<bool()>& condition, Duration limit);

  World& world() { return world_; }
  CoordinatorMachine& coordinator() { return coordinator_; }
  AdminClient& admin() { return admin_; }
  Invariants& invariants() { return invariants_; }
  const MoneyRules& money() const { return money_rules_; }
  const RunId& run() const { return run_; }
  DaemonMachine& daemon(std::size_t index) { return *daemons_[index]; }
  DaemonMachine& daemon(const std::string& name);
  std::size_t daemons() const { return daemons_.size(); }
  // Another process with this one's key and a copy of its disk, not started
  // yet.
  DaemonMachine& copy(DaemonMachine& daemon);
  // Ends every copy for good.
  void kill_copies();
  const ClusterOptions& options() const { return options_; }
  const pb::TokenCreated& token() const { return token_; }
  // Adds a small dataset that no run uses. If it is there, deletes it and adds
  // it again, in two requests that do not wait for each other.
  void add_spare_dataset();
  // Makes a small run on it; ends, deletes and makes it again where it is
  // there, the dataset with it, likewise.
  void add_spare_run();
  void delete_spare_run();
  // Uploads again what the coordinator lacks of the run's dataset.
  void add_dataset_again() { admin_.ask(dataset_); }
  // The person makes another one, since a restore has ended those before.
  void renew_token();
  bool is_sound() const { return invariants_.violations().empty(); }

  void ask_named(void (*set)(pb::AdminRequest&, const std::string&), const std::string& name,
                 AdminClient::Done done = {});
  // As the person's client saw it last: "" before the run exists.
  const std::string& run_state() const { return run_state_; }
  const std::string& run_reason() const { return run_reason_; }
  bool is_done() const { return run_state_ == "done" || run_state_ == "failed"; }
  Step steps_target() const { return steps_target_; }
  void set_steps_target(Step steps) { steps_target_ = steps; }
  // Of the first run, or an empty view.
  coordinator::ExpertView expert(ExpertIndex index) const;
  // The daemon that holds it, or nullptr.
  DaemonMachine* holder(ExpertIndex index);

 private:
  pb::AdminRequest dataset(const std::string& name, std::uint32_t partitions,
                           const std::string& prefix);
  void add_dataset();
  void wait_for_dataset();
  void create_run();
  void watch_run();
  void raise_budget(const pb::RunInfo& run);

  ClusterOptions options_;
  World world_;
  GossipGround gossip_;
  Invariants invariants_;
  LeaseRules lease_rules_;
  CoordinatorMachine coordinator_;
  MoneyRules money_rules_;
  IdleRules idle_rules_;
  AdminClient admin_;
  std::vector<std::unique_ptr<DaemonMachine>> daemons_;
  std::vector<std::unique_ptr<DaemonMachine>> copies_;
  pb::AdminRequest dataset_;
  pb::TokenCreated token_;
  RunId run_;  // empty: not made yet
  std::string run_state_;
  std::string run_reason_;
  Step steps_target_ = 0;
};

// A shape drawn from the seed: 3 to 10 nodes, with or without spares or turns.
ClusterOptions draw_options(std::uint64_t seed);

}  // namespace skerry::simulation
