// SPDX-License-Identifier: Apache-2.0
// The liveness rules, once every fault has healed, checked every second of the
// virtual clock.
//
// - L2, L4: every running daemon reaches the coordinator again.
// - L5: an expert commits, and the run ends.
// - L6: what waited for a full disk is stored.
// - copies: each expert's head has as many places as its run asks for, or as
//   there are.
// - turns: if an expert waits behind one whose turn is over, the holder is told
//   to yield.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/cluster.h"
#include "tests/simulation/durable.h"

namespace skerry::simulation {

std::string where_it_stands(Cluster& cluster);

class Aftermath final : public Watcher {
 public:
  explicit Aftermath(Cluster& cluster) : cluster_(cluster) {
    cluster_.world().watchers.push_back(this);
  }
  ~Aftermath() override { cluster_.world().watchers.pop_back(); }

  void before_healing();
  // Everything was healed: the looks begin.
  void begin();
  // No more looks.
  void end() { is_over_ = true; }
  Duration healed() const { return healed_; }
  Duration longest_wait() const { return longest_wait_; }

 private:
  struct Stuck {
    DaemonMachine* daemon = nullptr;
    std::uint64_t life = 0;
    std::uint64_t stored = 0;
  };
  void look();
  void check_commits();
  void check_connections();
  void check_disks();
  void check_turns();
  void check_copies();
  std::string lacks_copies(const coordinator::ExpertView& expert);
  bool is_kept_waiting(const std::vector<coordinator::ExpertView>& experts);

  Cluster& cluster_;
  bool is_over_ = false;
  Duration healed_{};
  Duration longest_wait_{};
  std::vector<Stuck> stuck_;
  std::map<std::size_t, std::pair<std::uint64_t, Duration>> lives_;  // daemon → life, silent since
  Duration kept_since_{};
  Duration copied_{};  // when all copies were last there
  Reader<stored::Expert> experts_;
  Reader<stored::Node> nodes_;
};

}  // namespace skerry::simulation
