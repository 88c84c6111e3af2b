// SPDX-License-Identifier: Apache-2.0
// The things that rooms keep records of: nodes, experts, runs and datasets.
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

namespace skerry::coordinator {

// What a node last said of a replica that it is to hold.
struct Held {
  // Of the assignment that first named it; earlier reports are of another copy.
  std::uint64_t version = 0;
  bool durable = false;
  std::uint64_t bytes = 0;
  Duration moved{};  // when either last changed
};

// Read by everybody, changed by its owner alone.
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

// What a node says of itself in this life of the coordinator.
struct Session {
  ConnectionId connection;  // empty: not connected since
  std::uint64_t sequence = 0;
  Duration seen{};
  std::int64_t seen_unix_ms = 0;
  bool self_draining = false;
  Duration drains_since{};  // while self_draining
  bool drained_told = false;
  std::vector<pb::Slot> slots;
  std::vector<pb::SlotStatus> status;
  std::string software;
  std::string host_label;
  std::string address;
  std::deque<std::uint64_t> superseded;  // incarnations whose place another process has taken
  // Of its assignment. Heartbeats name it only once it is durable.
  std::uint64_t version = 0;
  std::uint64_t version_batch = 0;
  std::uint64_t told_version = 0;
  std::uint64_t log_request = 0;
  bool log_ready = false;
  std::vector<std::string> log_lines;
};

struct Replicas {
  std::set<ExpertId> experts;  // whose checkpoints the node is to hold
  std::map<Hash, Held> held;   // of them, as last told to it
};

struct Node {
  Tracked<stored::Node> record;
  Owned<Roster, Session> session;
  Owned<Leases, std::set<ExpertId>> leases;  // held or lapsed
  Owned<Copies, Replicas> replicas;

  bool is_node() const { return record->role() == pb::ROLE_NODE; }
};

struct PendingCommit {
  Hash manifest;
  std::string node;
  pb::Commit commit;
  ConnectionId asker;
  std::uint64_t request = 0;
};

struct Avoided {
  std::uint64_t incarnation = 0;
  Duration until{};
};

struct LeaseState {
  bool lapsed = false;
  std::uint64_t grant_batch = 0;  // renewals wait for it
  bool yield = false;
  bool asked_back = false;  // yield, at some time in this lease
  std::string why = "not looked at yet";
  std::map<std::string, Avoided> avoid;
  // Nodes whose lease was taken over, or ended by a person, with its epoch:
  // they do not know yet. The last ones only.
  std::deque<std::pair<std::string, std::uint64_t>> overtaken;
  std::string last_report;
};

struct CommitState {
  std::optional<PendingCommit> pending;
  std::pair<std::string, std::uint64_t> fenced_told;  // node, epoch
  std::pair<std::string, std::string> refused_told;   // node, reason
};

struct Places {
  std::vector<std::string> places;  // nodes that a commit waits for, beside this disk
  std::string spare;                // one more that holds its checkpoints; empty: none
  std::map<std::string, Duration>
      stalled;  // nodes that did not receive them, until when they are not asked
};

struct Expert {
  Tracked<stored::Expert> record;
  Owned<Leases, LeaseState> lease;
  Owned<Commits, CommitState> commit;
  Owned<Copies, Places> copies;

  ExpertId id() const { return {RunId(record->run()), record->index()}; }
  bool has_lease() const { return record->has_lease(); }
  bool held() const { return has_lease() && !lease->lapsed; }
  bool is_held_by(const Node& node, std::uint64_t epoch) const;
  bool is_removed() const { return record->removed(); }
  bool has_head() const { return record->checkpoints_size() > 0; }
  Step step() const { return has_head() ? record->checkpoints(0).step() : 0; }
  // Raw, until the record changes; empty: none.
  const std::string& head() const {
    return (has_head() ? record->checkpoints(0) : stored::Checkpoint::default_instance())
        .manifest();
  }
};

struct Run {
  Tracked<stored::Run> record;
  std::vector<Expert> experts;  // its jobs: a router that is trained is the last
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
  // Every expert of the ensemble is.
  bool is_all_at_target() const {
    return std::ranges::all_of(experts, [this](const Expert& expert) {
      return expert.is_removed() || is_at_target(expert);
    });
  }
};

struct Dataset {
  Tracked<stored::Dataset> record;
  std::string digest;  // of the content: the same again is a resume
  NodeId source;       // who uploads
  std::set<Hash> fetching;
  std::map<Hash, std::uint64_t> progress;
};

inline pb::ObjectRef object_ref(const stored::Checkpoint& checkpoint) {
  pb::ObjectRef ref;
  ref.set_manifest(checkpoint.manifest());
  ref.set_manifest_bytes(checkpoint.manifest_bytes());
  ref.set_bytes(checkpoint.bytes());
  return ref;
}

}  // namespace skerry::coordinator
