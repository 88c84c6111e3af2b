// SPDX-License-Identifier: Apache-2.0
// When a node may run its --idle-exec, from the messages that the coordinator
// answered and the leases that it shows.
//
// - idle: the command runs once after each time with work, and never under a
//   lease. The coordinator lets it run only if nobody waits who fits the node,
//   and if no checkpoint lacks a copy without the node. Runs with a budget, or
//   with cards that were too small, are left out: who fits them is not known
//   here.
#pragma once

#include <map>
#include <set>
#include <string>

#include "coordinator/state.pb.h"
#include "tests/simulation/world.h"

namespace skerry::simulation {

class IdleRules final : public Watcher {
 public:
  explicit IdleRules(World& world) : world_(world) {}

  void coordinator_started(const coordinator::Core& core, const Durable& durable) override;
  void coordinator_stepped(const CoordinatorStep& step) override;
  void daemon_stepped(const DaemonStep& step) override;
  void daemon_stopped(const std::string& name) override { daemons_.erase(name); }

 private:
  // As its messages tell of it.
  struct Node {
    std::string host;
    std::uint64_t incarnation = 0;
    bool may_stop = false;
    bool lost_card = false;
    std::set<std::string> held;  // manifests of replicas that are durable there
  };
  struct Daemon {
    bool has_run = false;  // since it had work last
    bool runs = false;
  };
  void take_word(const CoordinatorStep& step, const coordinator::Received& event);
  void let_stop(const NodeId& id, const CoordinatorStep& step);
  bool waits(const coordinator::ExpertView& expert) const;
  bool rests_on(const NodeId& id, const coordinator::ExpertView& expert) const;

  World& world_;
  std::map<NodeId, Node> nodes_;
  std::map<RunId, coordinator::stored::Run> runs_;
  std::map<ExpertId, coordinator::ExpertView> views_;  // before the step under way
  std::map<Hash, NodeId> committers_;
  std::map<std::string, Daemon> daemons_;  // by name
};

}  // namespace skerry::simulation
