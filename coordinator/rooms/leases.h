// SPDX-License-Identifier: Apache-2.0
// The life of a lease: (run, expert) → (node, slot, incarnation, epoch), and
// the schedule that begins and ends it. It may hold further slots of its node,
// whose cards share each batch with the slot's; these change at the same epoch.
//
//   - none → held: the scheduler grants it. The epoch is raised, and is durable
//     before the grant leaves.
//   - held → lapsed: it expired, or the holder's connection closed. Nobody else
//     holds it yet. The holder's work still counts, and the scheduler may
//     reassign the expert.
//   - lapsed → held: the holder returns before a reassignment. It resumes under
//     the same epoch and loses nothing.
//   - held, lapsed → none: returned, finished, evicted, revoked or restarted.
//
// Invariant: an expert's epoch only grows, and is raised whenever another node
// may hold the expert. A node's set of leases are those whose record names it.
// No slot is in two of them.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coordinator/rooms/commits.h"
#include "coordinator/rooms/scheduler.h"
#include "coordinator/rooms/spending.h"

namespace skerry::coordinator {

class Leases : Room {
 public:
  // LIFETIME: the other rooms outlive this one.
  Leases(Context& the_context, EventLog& events, Runs& runs, Roster& roster,
         const Datasets& datasets, Copies& copies, Commits& commits, const Speeds& speeds,
         Spending& spending)
      : Room(the_context),
        events_(events),
        runs_(runs),
        roster_(roster),
        datasets_(datasets),
        copies_(copies),
        commits_(commits),
        speeds_(speeds),
        spending_(spending) {}

  Schedule plan() const;
  pb::Assignment assignment_of(const Node& node) const;
  // Whether a heartbeat reply may renew its lease: the grant must be durable.
  bool may_renew(const Expert& expert) const;

  // Carries out the schedule, if any of its inputs changed.
  void reschedule();
  // When reschedule() is next due; never after `latest`.
  Duration next_rescheduling(Duration latest) const;
  void tick();
  void batch_numbered();
  // The coordinator itself stalled: closed connections that queued up meanwhile
  // do not prove that nodes are gone.
  void distrust_clock() {
    lagged_until_ = now.boot + config.early_end_window;
    trusted_from_ = now.boot;
  }

  // ---- Reports of nodes (reports.cc)
  void return_lease(const Node& node, const pb::ReturnLease& returned);
  void engine_report(const Node& node, const pb::EngineReport& report);

  // On Hello: ends leases whose slots are gone, and resumes lapsed ones.
  void resume_all(Node& node, std::uint32_t slots);
  void resume_if_lapsed(Expert& expert, const Node& node);
  // Its node says what a slot does: it trains from here on, or not yet.
  void hear(const Node& node, const pb::SlotStatus& status);
  // Bytes of an object came here: the commit that waits for it is on its way.
  void receives(const Hash& manifest);
  // Logs that a node trains an expert it has lost. The node discards that work
  // by itself.
  void tell_overtaken(const Node& node, const pb::SlotStatus& status);
  // A node has trained up to `step` in a lease that another has by now.
  void lose_beyond(const Node& node, const ExpertId& id, Epoch epoch, Step step);
  // Whether an idle node may end: it holds no lease, no run waits for a slot,
  // and no copy rests on it alone.
  bool may_stop(const Node& node) const;
  void release(Expert& expert, EventKind kind, const std::string& reason);
  void release_all(Node& node, EventKind kind, const std::string& reason, bool raise_epoch);
  // Releases an expert that reached its target; the last one ends its run.
  void end_finished(Expert& expert);
  void raise_epoch(Expert& expert);
  // After a restore: ends the leases of other generations, because grants made
  // after the backup are unknown.
  void end_leases_of_old_generations();
  // A node has seen epochs of `generation`, so a later backup was restored
  // before this one: raises the generation beyond it.
  void go_beyond(const std::string& node, std::uint64_t generation);
  void load(Node& node, const Expert& expert) { node.leases.edit().insert(expert.id()); }

 private:
  // An expert that lost its holder in this step. The event is logged once the
  // schedule has decided what comes next.
  struct Lost {
    ExpertId expert;
    EventKind kind;
    std::string node;
    std::string reason;
  };

  struct Inputs;

  static LeaseState& state(Expert& expert) { return expert.lease.edit(); }
  void add_nodes(Inputs& inputs) const;
  std::size_t job_index(Inputs& inputs, const Run& run, std::uint32_t expert) const;
  SchedulableExpert view_of(Inputs& inputs, const Run& run, const Expert& expert) const;
  // Bytes of the expert's files that nodes lack, where they have any.
  std::map<NodeId, double> lacks(const Expert& expert, std::uint64_t shard_bytes) const;
  void too_small(Expert& expert, const Node& node);
  void lapse_all(const Node& node, const std::string& reason);
  void overtake(Expert& expert);
  // Ends a lease that its node still counts on: its work is fenced.
  void take_away(Expert& expert, EventKind kind, const std::string& reason);
  void lose_uncommitted(Expert& expert);
  void avoid(Expert& expert, const Node& node);
  void raise_attempt(Run& run, Expert& expert, const std::string& reason);
  void expire();
  void end_early();
  std::size_t early_ends_left();
  void end_stalled();  // stalls.cc
  void hear_progress(Expert& expert, Step step, std::uint64_t fetched);
  bool is_due(const Expert& expert, Step step) const;
  void grant(Expert& expert, const Grant& granted);
  void resize(Expert& expert, const Resize& resized);
  void keep_slots(Expert& expert, const Node& node);
  void keep_reservations(const Schedule& planned);
  void apply_yields(const Schedule& planned);
  void update_run_state(Run& run);
  void tell_lost();

  EventLog& events_;
  Runs& runs_;
  Roster& roster_;
  const Datasets& datasets_;
  Copies& copies_;
  Commits& commits_;
  const Speeds& speeds_;
  Spending& spending_;
  std::vector<Lost> lost_;
  std::set<ExpertId> regranted_;  // in this step
  std::deque<Duration> early_ends_;
  Duration lagged_until_{};
  Duration trusted_from_{};  // silence before it may be the coordinator's own
  Duration reschedule_after_{};
  // From a grant to training, as seen of late, without the time in which the
  // node fetched.
  std::map<RunId, double> start_seconds_;
  std::optional<std::set<NodeId>> awaited_;  // of the last schedule; none: there was none
};

}  // namespace skerry::coordinator
