// SPDX-License-Identifier: Apache-2.0
// Copies of checkpoints at nodes, in addition to those on the coordinator's
// disk: their placement, the nodes' reports, and repairs from them.
//
// An assignment lists the replicas that a node must hold: for each expert
// placed there, the head and the pending commit. The node reports with every
// heartbeat whether each is durable.
//
// Invariant: none of this state is durable, so a start places all copies anew.
// A report counts only if the node had seen the assignment that asked for it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "coordinator/rooms/objects.h"
#include "coordinator/rooms/roster.h"

namespace skerry::coordinator {

class Copies : Room {
 public:
  // LIFETIME: the other rooms outlive this one.
  Copies(Context& the_context, EventLog& events, Runs& runs, Roster& roster, const Objects& objects)
      : Room(the_context), events_(events), runs_(runs), roster_(roster), objects_(objects) {}

  std::vector<pb::Replica> replicas_of(const Node& node) const;
  // RETURNS: on how many hosts it is durable, not counting the committer's host
  // and the coordinator's.
  std::size_t hosts_with(const Expert& expert, const Hash& manifest, const NodeId& committer) const;
  // RETURNS: how many more places must report before a commit counts.
  std::size_t lacking(const Expert& expert, const Hash& manifest, const NodeId& committer) const;
  // Why checkpoints have fewer copies than wanted, or a commit waits for them.
  std::vector<std::string> why(const Run& run, const Expert& expert) const;
  std::uint32_t places_with_head(const Expert& expert) const;
  Step unanchored_steps(const Expert& expert) const;
  // Whether an expert has fewer copies than its run asks for without this node,
  // or its head is on no other disk. Also while a commit waits for this node.
  bool rests_on(const Node& node) const;

  // The head or the pending commit changed: sends its nodes new assignments.
  void changed(const Expert& expert);
  void hear(Node& node, const pb::Heartbeat& beat);
  // Discards the reports of the node's former process.
  void restart(Node& node);
  void excuse(Duration lag);
  // Places copies at the nodes, after the schedule. Existing copies stay where
  // they are; lost ones are placed again.
  void place();
  void tick();
  // RETURNS: whether a commit that waits for copies may have enough now. Clears
  // the flag.
  bool take_recount() { return std::exchange(recount_, false); }

  // ---- Repairs: lost objects are fetched back from nodes
  bool is_repairing(const Hash& manifest) const { return repairs_.contains(manifest); }
  // RETURNS: a live node that reported its copy durable, or nothing.
  std::vector<NodeId> holder_of(const Hash& manifest) const;
  void repair(const pb::ObjectRef& object, Purpose purpose, const std::vector<NodeId>& from);
  void forget_repairs(const Objects::IsWanted& is_sought);

 private:
  void changed(Node& node);
  bool waits_no_more(const Node& committer) const;
  void give_up_stalled(Expert& expert);
  std::size_t slots_held(const Node& node) const;

  EventLog& events_;
  Runs& runs_;
  Roster& roster_;
  const Objects& objects_;
  std::map<Hash, Duration> repairs_;  // requested from nodes, since when
  bool recount_ = false;
  Duration next_placing_{};
};

// RETURNS: how many, in addition to the coordinator's own.
std::size_t copies_wanted(const Run& run);

}  // namespace skerry::coordinator
