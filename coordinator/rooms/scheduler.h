// SPDX-License-Identifier: Apache-2.0
// The scheduler: a pure function from experts and slots to grants and yields,
// each with a one-line reason. Sticky: it never moves a held lease. When a turn
// is over, it asks the holder to return the lease at its next commit.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/ids.h"

namespace skerry::coordinator {

struct SlotId {
  NodeId node;
  std::uint32_t slot = 0;
  auto operator<=>(const SlotId&) const = default;
};

struct SchedulableExpert {
  ExpertId id;
  std::string run_name;
  Step step = 0;
  Step steps_target = 1;
  bool wanted = true;            // false: paused, stopped, done or failed
  std::string unwanted_because;  // "the run is paused"
  std::uint32_t turn_rounds = 5;
  std::uint32_t rounds_in_turn = 0;
  std::optional<SlotId> holder;
  NodeId last_node;        // has its chunks; empty: none
  std::set<NodeId> warm;   // hold its head: they start from their own disks
  std::set<NodeId> avoid;  // gave it up recently
};

struct SchedulableNode {
  NodeId id;
  std::string name;
  std::vector<std::uint32_t> slots;
  bool usable = true;
  bool draining = false;         // its leases end at their next commits; implies not usable
  std::string unusable_because;  // "cordoned", "draining", "lost"
};

struct Grant {
  ExpertId expert;
  SlotId slot;
  std::string reason;
};

struct Yield {
  ExpertId expert;
  std::string reason;
};

struct Why {
  ExpertId expert;
  std::string reason;
};

struct Schedule {
  std::vector<Grant> grants;
  std::vector<Yield> yields;  // every lease that should end at its next commit
  std::vector<Why> why;       // one for each expert, in their order
  std::size_t spares = 0;     // usable slots left over
};

Schedule schedule(const std::vector<SchedulableExpert>& experts,
                  const std::vector<SchedulableNode>& nodes);

}  // namespace skerry::coordinator
