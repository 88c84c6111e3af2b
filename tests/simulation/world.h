// SPDX-License-Identifier: Apache-2.0
// What every part of a simulated cluster shares. Owned by Cluster, outlives all
// parts.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/simulation/dice.h"
#include "tests/simulation/library.h"
#include "tests/simulation/network.h"
#include "tests/simulation/timeline.h"
#include "tests/simulation/trace.h"
#include "tests/simulation/watcher.h"

namespace skerry::simulation {

// Unix milliseconds of a right wall clock when a simulation begins.
inline constexpr std::int64_t kEpochStart = 1'800'000'000'000;

// A process that keeps objects on a disk.
class Keeper {
 public:
  virtual ~Keeper() = default;
  virtual bool has_stored(const Hash& manifest) const = 0;  // perhaps damaged since
};

// A process that may believe that it holds an expert.
class Believer {
 public:
  virtual ~Believer() = default;
  // By its own clock, at this moment.
  virtual bool believes(const ExpertId& expert, Epoch epoch, std::uint64_t incarnation) const = 0;
};

struct GossipGround;

struct World {
  World(std::uint64_t the_seed, Trace::Keep keep)
      : seed(the_seed), trace(timeline, keep), network(timeline, trace, the_seed) {}

  std::uint64_t seed;
  Timeline timeline;
  Trace trace;
  Network network;
  Library library;
  std::vector<Watcher*> watchers;
  std::map<NodeId, const Keeper*> keepers;
  std::uint64_t non_finite_one_in = 0;
  Step non_finite_steps = 1;                     // somewhere among so many
  std::size_t event_limit = 0;                   // of the coordinator's log
  std::size_t node_event_limit = 0;              // of them, one node's
  Duration recall_least{};                       // a restored coordinator answers nobody before
  std::uint32_t attempts = 0;                    // of an expert without a commit between
  std::uint64_t run_seed = 1;                    // of the weights
  std::uint64_t steps_trained = 0;               // by all engines, repeated ones too
  std::map<std::string, std::string> key_names;  // X25519 key → name, for lines
  std::map<std::string, std::uint64_t> faults;   // by kind, as they took place
  std::vector<const Believer*> believers;        // every daemon
  std::map<NodeId, std::uint64_t> memory_bytes;  // of each slot
  std::function<bool(const Hash&)> is_stored;    // whole and undamaged on the coordinator's disk
  GossipGround* gossip = nullptr;                // none: nobody gossips
  // Daemons that run and whose records say that this node is revoked, with
  // their names.
  std::function<std::map<NodeId, std::string>(const NodeId&)> hold_revocation;

  template <class Tell>
  void tell(Tell&& tell) {
    for (Watcher* watcher : watchers) tell(*watcher);
  }
  void violated(const std::string& id, const std::string& what) {
    tell([&](Watcher& watcher) { watcher.violated(id, what); });
  }
  std::string name_of_key(const std::string& key) const {
    const auto found = key_names.find(key);
    return found == key_names.end() ? "a stranger" : found->second;
  }
};

}  // namespace skerry::simulation
