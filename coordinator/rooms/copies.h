// SPDX-License-Identifier: Apache-2.0
// Copies of checkpoints at nodes, beside the coordinator's disk, which holds
// every one: who is to hold what, what nodes report, and what comes back from
// them.
//
// A node learns by its assignment which replicas it is to hold: of each expert
// placed with it, the head and the pending commit. It reports with every
// heartbeat whether each is durable.
//
// Invariant: nothing of this is stored, so a start places everything anew. A
// report counts only if the node had seen the assignment that asked for it.
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
  // On distinct hosts, besides its committer's and our own.
  std::size_t hosts_with(const Expert& expert, const Hash& manifest,
                         const std::string& committer) const;
  // How many places are still to report before a commit counts.
  std::size_t lacking(const Expert& expert, const Hash& manifest,
                      const std::string& committer) const;
  // Why checkpoints have fewer copies than wanted, or a commit waits for them.
  std::vector<std::string> why(const Run& run, const Expert& expert) const;
  std::uint32_t places_with_head(const Expert& expert) const;
  Step unanchored_steps(const Expert& expert) const;

  // The head or the pending commit is another: its nodes are told.
  void changed(const Expert& expert);
  void hear(Node& node, const pb::Heartbeat& beat);
  // What a former process of the node said counts no more.
  void restart(Node& node);
  void excuse(Duration lag);
  // Places what the schedule leaves. What was placed stays where it is, and
  // what was lost is placed anew.
  void place();
  void tick();
  // RETURNS: once, whether a commit that waits for copies may have them.
  bool take_recount() { return std::exchange(recount_, false); }

  // ---- What this disk has lost comes back from nodes
  bool is_repairing(const Hash& manifest) const { return repairs_.contains(manifest); }
  // RETURNS: a live node that reported its copy durable; none: empty.
  std::vector<NodeId> holder_of(const Hash& manifest) const;
  void repair(const pb::ObjectRef& object, Purpose purpose, const std::vector<NodeId>& from);
  void forget_repairs(const Objects::IsWanted& is_sought);

 private:
  void changed(Node& node);
  bool waits_no_more(const Node& committer) const;
  void give_up_stalled(Expert& expert);

  EventLog& events_;
  Runs& runs_;
  Roster& roster_;
  const Objects& objects_;
  std::map<Hash, Duration> repairs_;  // asked of nodes, since when
  bool recount_ = false;
  Duration next_placing_{};
};

// Beside the coordinator's.
std::size_t copies_wanted(const Run& run);

}  // namespace skerry::coordinator
