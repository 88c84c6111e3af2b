// SPDX-License-Identifier: Apache-2.0
// The liveness rules of gossip, once every fault has healed, and what remains
// of gossip when the coordinator is gone. Both are checked every few seconds of
// the virtual clock.
//
// - L3: what a connected process publishes about itself, every connected
//   process holds within 25 rounds. A record of an expert has 50, since its run
//   comes first. A node goes on renewing its signatures.
// - S10: of two contents that a hostile node signed under one version, all
//   connected processes hold the same.
// - alone: without the coordinator, each node's records name the parts of the
//   run. If some node keeps an expert's last commit, they name that commit and
//   a node that has it.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/simulation/cluster.h"
#include "tests/simulation/gossip_ground.h"

namespace skerry::simulation {

// Twenty rounds, and five for a dial that failed.
inline constexpr int kSpreadRounds = 25;

class GossipAftermath {
 public:
  explicit GossipAftermath(Cluster& cluster);

  // Everything was healed: the looks begin.
  void begin() { look(); }
  // Ends the coordinator for good, once everybody knows the last word, and asks
  // each node. REQUIRES: the run is over.
  void without_coordinator();
  Duration spread() const { return spread_; }

 private:
  struct Speaker {
    std::string name;
    NodeId id;
    const gossip::Table* table = nullptr;
    Now now;
    Duration since{};  // connected without a break
  };
  struct Word {
    gossip::Version version;
    Duration since{};
  };
  struct Place {
    std::uint64_t life = 0;
    Duration since{};
  };
  struct Head {
    ExpertIndex expert = 0;
    Step step = 0;
    Hash manifest;
    bool is_trained_here = false;  // by a node that runs, and keeps it
  };

  std::vector<Speaker> speakers();
  void look();
  Duration within(const gossip::Key& key) const;
  void hear(const Speaker& speaker, const gossip::Entry& entry);
  void check(const std::vector<Speaker>& all);
  bool ends_early(const gossip::Key& key, const std::vector<Speaker>& all,
                  const Speaker& other) const;
  bool is_misdated(const gossip::Entry& own) const;
  std::vector<gossip::Version> misdated_by_coordinator();  // its runs and heads
  void check_signs(const Speaker& node);
  void check_two_faced(const std::vector<Speaker>& all, const NodeId& author);
  void ask(const DaemonMachine& daemon, const std::vector<Head>& heads);
  bool is_kept(const Hash& manifest);
  bool is_trained_here(const Hash& manifest);
  bool is_out(const NodeId& node);
  bool is_overtaken(const DaemonMachine& daemon);

  Cluster& cluster_;
  Duration spread_;
  std::map<std::string, Place> places_;
  std::map<gossip::Key, std::deque<Word>>
      words_;  // of each key, growing; all but the first are younger than spread_
};

}  // namespace skerry::simulation
