// SPDX-License-Identifier: Apache-2.0
// Chooses the nodes that hold copies of an expert's checkpoints, in addition to
// the coordinator's disk. A pure function.
//
// Sticky: a node keeps its copy as long as it may. No two copies are on one
// host, and none is on the host that commits the checkpoints.
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
  // It is being trained: a spare should be able to resume from its own disk.
  bool wants_spare = false;
  NodeId source;                // the committer; empty: nobody has committed
  std::vector<NodeId> current;  // as placed before
  std::set<NodeId> avoid;       // could not receive it lately
};

struct PlaceableNode {
  NodeId id;
  std::string host;  // empty: the node shares its host with no other
  bool may_take = true;
  bool may_keep = true;
  bool is_spare = false;
};

struct Placement {
  // A commit waits for these: as many as wanted, or fewer where hosts are few.
  std::vector<NodeId> copies;
  std::optional<NodeId> spare;      // holds one more, for a takeover; no commit waits for it
  std::optional<NodeId> stands_by;  // of a wanted spare: it, or one of the copies with a free slot
};

// `own_host`: the coordinator's.
// RETURNS: one placement for each expert, in their order.
std::vector<Placement> place(const std::vector<PlaceableExpert>& experts,
                             const std::vector<PlaceableNode>& nodes, const std::string& own_host,
                             std::size_t experts_of_node);

// RETURNS: the node's failure domain; without a label it is the node alone.
std::string host_key(const NodeId& node, const std::string& label);

}  // namespace skerry::coordinator
