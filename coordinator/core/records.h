// SPDX-License-Identifier: Apache-2.0
// The entities that rooms keep: nodes, experts, runs and datasets. Each has a
// durable record and volatile state.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/core/core.h"
#include "coordinator/core/table.h"
#include "coordinator/rooms/router_job.h"
#include "coordinator/rooms/scheduler.h"

namespace skerry::coordinator {

// A node's last report on a replica that it must hold.
struct Held {
  // Of the assignment that first named it; earlier reports mean another copy.
  std::uint64_t version = 0;
  bool durable = false;
  bool has_shards = false;
  std::uint64_t bytes = 0;
  Duration moved{};  // when either last changed
};

// A value that every room may read and only its owner may change.
template <class Owner, class Value>
class Owned {
 public:
  const Value& operator*() const { return value_; }
  const Value* operator->() const { return &value_; }

 private:
  friend Owner;
  Value& edit() { return value_; }

  Value value_{};
};

class Commits;
class Copies;
class Leases;
class Roster;

using Peers = std::map<ConnectionId, NodeId>;

// What a node has reported since the coordinator started.
struct Session {
  ConnectionId connection;  // empty: not connected since
  std::uint64_t sequence = 0;
  Duration seen{};
  std::int64_t seen_unix_ms = 0;
  bool self_draining = false;
  Duration drains_since{};  // while self_draining
  // Boot time of the end of its machine, by the notice that it reports.
  std::optional<Duration> leaves_at;
  bool self_cordoned = false;  // it was advised to expect a notice
  std::string notice;          // the platform's word for either; empty: neither
  bool drained_told = false;
  std::vector<pb::Slot> slots;
  std::vector<pb::SlotStatus> status;
  std::string software;
  std::string host_label;
  double price = 0;       // of the machine, dollars an hour; 0: unknown
  bool may_stop = false;  // it was told so: it gets no lease
  // What its version knows: leases of several slots, runs on captions.
  bool knows_cards = false, knows_captions = false;
  std::string address;
  // Of the objects that it fetched, recent ones more: their size and time.
  double fetched_bytes = 0;
  double fetched_seconds = 0;
  std::deque<std::uint64_t> superseded;  // incarnations that a newer process has replaced
  // Of its assignment. Heartbeat replies name it only once it is durable.
  std::uint64_t version = 0;
  std::uint64_t version_batch = 0;
  std::uint64_t told_version = 0;
  std::uint64_t log_request = 0;
  bool log_ready = false;
  std::vector<std::string> log_lines;
};

struct Replicas {
  std::set<ExpertId> experts;  // whose checkpoints the node must hold
  std::map<Hash, Held> held;   // those checkpoints, as last sent to the node
};

struct Node {
  Tracked<stored::Node> record;
  Owned<Roster, Session> session;
  Owned<Leases, std::set<ExpertId>> leases;  // held or lapsed
  Owned<Copies, Replicas> replicas;

  const NodeId& id() const { return record.id(); }
  bool is_node() const { return record->role() == pb::ROLE_NODE; }
};

struct PendingCommit {
  Hash manifest;
  NodeId node;
  pb::Commit commit;
  ConnectionId asker;
  std::uint64_t request = 0;
};

struct Avoided {
  std::uint64_t incarnation = 0;
  Duration until{};
};

struct Overtaken {
  NodeId node;
  Epoch epoch;
  Step trained = 0;  // up to here its steps are accepted or counted as lost
};

struct LeaseState {
  bool lapsed = false;
  std::uint64_t grant_batch = 0;  // renewals wait until it is durable
  bool yield = false;
  bool asked_back = false;  // `yield` was set at some time in this lease
  std::string why = "not looked at yet";
  double seconds_left = -1;  // as the last schedule saw it; < 0: it is not held
  // The slot that a schedule keeps for it, and why it goes there.
  std::optional<SlotId> reserved;
  std::string reserved_because;
  std::uint32_t rounds_seen = 0;  // of the lease, by the last schedule
  // When the lease was granted, or first looked at after the start.
  std::optional<Duration> granted;
  bool granted_here = false;             // since the start
  double granted_lacks = 0;              // bytes of its files, which the node lacked then
  bool granted_kept = false;             // the slot that was reserved for it
  std::optional<Duration> trains_since;  // its node said so first
  Step trains_from = 0;                  // the head's at that time
  Step trained = 0;                      // the furthest that its node said
  // Of stalls.cc: when it last came nearer to a commit; when it last committed
  // or was granted. The rest is what was known by then.
  Duration progressed{};
  Duration committed{};
  Step stepped_from = 0;  // the head's step
  std::uint64_t fetched = 0;
  bool spent = false;  // its run was past its budget
  std::map<NodeId, Avoided> avoid;
  // Nodes whose lease was reassigned, or ended by an operator: they do not know
  // yet. Only the most recent ones.
  std::deque<Overtaken> overtaken;
  std::string last_report;
};

struct CommitState {
  std::optional<PendingCommit> pending;
  std::pair<NodeId, Epoch> fenced_told;
  std::pair<NodeId, std::string> refused_told;  // and reason
};

struct Places {
  std::vector<NodeId> places;   // nodes that a commit waits for, beside this disk
  std::optional<NodeId> spare;  // one more node with its checkpoints
  // Of all these the one that has a free slot: it holds the shards as well.
  std::optional<NodeId> stands_by;
  // Nodes that did not receive them, and until when they are not chosen.
  std::map<NodeId, Duration> stalled;
};

struct Expert {
  Tracked<stored::Expert> record;
  Owned<Leases, LeaseState> lease;
  Owned<Commits, CommitState> commit;
  Owned<Copies, Places> copies;

  const ExpertId& id() const { return record.id(); }
  Epoch epoch() const { return Epoch(record->epoch()); }
  bool has_lease() const { return record->has_lease(); }
  // REQUIRES: it has a lease.
  NodeId holder() const { return NodeId(record->lease().node()); }
  bool held() const { return has_lease() && !lease->lapsed; }
  bool is_held_by(const Node& node, Epoch of) const;
  // RETURNS: how many slots its lease has; 0: it has none.
  std::uint32_t cards() const {
    return has_lease() ? 1 + static_cast<std::uint32_t>(record->lease().more_slots_size()) : 0;
  }
  bool is_removed() const { return record->removed(); }
  bool has_head() const { return record->checkpoints_size() > 0; }
  Step step() const { return has_head() ? record->checkpoints(0).step() : 0; }
  // RETURNS: the raw manifest hash; empty: none.
  // LIFETIME: until the record changes.
  const std::string& head() const {
    return (has_head() ? record->checkpoints(0) : stored::Checkpoint::default_instance())
        .manifest();
  }
};

struct Run {
  Tracked<stored::Run> record;
  std::vector<Expert> experts;  // its jobs; a trained router is the last

  const RunId& id() const { return record.id(); }
  bool is_router(std::uint32_t index) const {
    return trains_router(record->spec()) && index + 1 == record->experts();
  }
  std::string job_name(std::uint32_t index) const;  // "expert 3", "the router"
  pb::TrainSpec training_of(std::uint32_t index) const;
  bool active() const { return record->wanted() == stored::WANTED_ACTIVE; }
  bool is_at_target(const Expert& expert) const { return expert.step() >= record->steps_target(); }
  bool wants(const Expert& expert) const {
    return active() && !expert.is_removed() && !is_at_target(expert);
  }
  // Cards that a lease is to have; 0: as many as gain.
  std::uint32_t cards_per_expert() const {
    const pb::RunSpec& spec = record->spec();
    return spec.has_cards_per_expert() ? spec.cards_per_expert() : 1;
  }
  // Whether every expert that was not removed is at its target.
  bool is_all_at_target() const {
    return std::ranges::all_of(experts, [this](const Expert& expert) {
      return expert.is_removed() || is_at_target(expert);
    });
  }
};

struct Dataset {
  Tracked<stored::Dataset> record;
  std::string digest;  // of the content: adding the same content resumes the upload
  NodeId source;       // the person who uploads
  std::set<Hash> fetching;
  std::map<Hash, std::uint64_t> progress;
};

// Whether a node says that nothing can train on a slot's card.
inline bool is_lost(const pb::SlotStatus& status) {
  return status.run().empty() && status.phase() == pb::SLOT_FAILED;
}

inline pb::ObjectRef object_ref(const stored::Checkpoint& checkpoint) {
  pb::ObjectRef ref;
  ref.set_manifest(checkpoint.manifest());
  ref.set_manifest_bytes(checkpoint.manifest_bytes());
  ref.set_bytes(checkpoint.bytes());
  return ref;
}

}  // namespace skerry::coordinator
