// SPDX-License-Identifier: Apache-2.0
// Which nodes hold copies of an expert's checkpoints beside the coordinator's
// disk: a pure function. Sticky: who holds one keeps it as long as it may. No
// two copies are on one host, and none is where the checkpoints are made.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/ids.h"

namespace skerry::coordinator {

struct PlaceableExpert {
  ExpertId id;
  std::size_t copies = 0;  // wanted, beside the coordinator's
  bool wants_spare =
      false;      // it is being trained: a spare should be able to take over from its own disk
  NodeId source;  // commits; empty: nobody has yet
  std::vector<NodeId> current;  // as placed before
  std::set<NodeId> avoid;       // could not receive it lately
};

struct PlaceableNode {
  NodeId id;
  std::string host;  // empty: known to be nobody else's
  bool may_take = true;
  bool may_keep = true;
  bool is_spare = false;
};

struct Placement {
  std::vector<NodeId>
      copies;  // what a commit waits for: at most as many as are wanted, fewer where hosts are few
  std::optional<NodeId> spare;  // holds one more, for whoever takes over; no commit waits for it
};

// `own_host`: the coordinator's. One for each expert, in their order.
std::vector<Placement> place(const std::vector<PlaceableExpert>& experts,
                             const std::vector<PlaceableNode>& nodes, const std::string& own_host,
                             std::size_t experts_of_node);

// What would die together; nodes of which nothing is known stand alone.
std::string host_key(const NodeId& node, const std::string& label);

}  // namespace skerry::coordinator
