// SPDX-License-Identifier: Apache-2.0
// The safety rules, checked after every step of every core, by the ids of
// docs/internals/reliability.md. The code follows from the rules alone: it
// keeps its own account of what was granted, committed, acknowledged, revoked
// and enrolled, and compares.
//
// - S1: each (expert, epoch) has one holder. A process that may commit under
//   the current epoch is that holder, and nobody commits past its lease.
// - S2: each applied commit carries the current epoch and comes from the node
//   that holds it.
// - S3: published epochs never go back and are never given twice, across
//   restarts and restores. A restore from an older backup than an earlier
//   restore keeps this once a node has reported the generation that it saw.
// - S4: what durable state names is on the disk. The hosts check it.
// - copies: a commit waits until as many hosts as it has places hold it, none
//   of them its committer's. It does not wait for a committer that has been
//   leaving for long. A host counts by the last heartbeat of a living process
//   since the coordinator's start. What a node reports is on its disk, and it
//   drops no replica that it must hold.
// - S5: each head is followed only by its child, once. An acknowledged head
//   never goes back.
// - S6: after a crash the disk holds whole batches and whole objects.
// - S7: what is sent is durable: grants, renewals, acceptances, enrolments,
//   revocations, versions of assignments.
// - S8: nothing is dropped that durable or pending state names, nor a pending
//   commit. A daemon keeps its head and what it has sent, and drops nothing
//   before a coordinator has answered it.
// - S9: the spans of an expert's commits follow one another without a gap.
// - S12: a commit is applied in the name of the node whose key sent it.
// - S13: a token enrols at most its number of keys, and none after it expired.
// - S14: after an acknowledged revocation the key receives only errors, nothing
//   of its is applied, and the transport refuses it. A restored coordinator
//   answers nobody before it asked the nodes, and then knows every revocation
//   that a node it asked holds.
// - engine: an engine is given data that it can use, while no disk loses bytes.
// - S15: messages and the event log keep their bounds.
// - S16: a saved state can be loaded. The hosts check it.
// - events: no two events have the same number, across restarts too.
// - order: of a run's waiting experts, the one with the most left is granted
//   first, unless it avoids the node.
// - attempts: a run fails for want of attempts only if one expert used all of
//   them since its last commit.
// - assignment: a node never goes back to an older assignment between two
//   Hellos.
// - drain: a draining node returns no lease whose work it has not committed.
// - weights: each head's weights are its parent's, trained by exactly the steps
//   between.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/simulation/disk_rules.h"
#include "tests/simulation/durable.h"
#include "tests/simulation/world.h"

namespace skerry::simulation {

struct Violation {
  std::string id;
  std::string what;
  Duration at{};
};

class Invariants final : public Watcher {
 public:
  explicit Invariants(World& world) : world_(world) {}

  const std::vector<Violation>& violations() const { return violations_; }
  // A person has been told that this X25519 key is revoked. `overtaken`: the
  // coordinator was restored since it was asked.
  void revocation_acknowledged(const std::string& key, bool overtaken = false);
  std::uint64_t commits() const { return commits_; }
  Duration last_commit() const { return last_commit_; }
  // This node has said so of this expert, or came no nearer to a commit: it may
  // be avoided for a while.
  bool gave_up(const ExpertId& expert, const NodeId& node) const {
    return gave_up_.contains({expert, node});
  }

  // RETURNS: the steps of the longest round that the head's author committed
  // since it took over. 0 if the head is the first commit.
  Step longest_round(const ExpertId& expert) const;

  void coordinator_stepped(const CoordinatorStep& step) override;
  void coordinator_started(const coordinator::Core& core, const Durable& durable) override;
  void coordinator_stopped() override;
  void coordinator_restored(const Durable& durable) override;
  void coordinator_hears(const coordinator::ConnectionId& connection, const std::string& key,
                         const pb::ControlRequest& request) override;
  void coordinator_sends(const std::string& key, const pb::ControlReply& reply,
                         const Durable& durable) override;
  void coordinator_sends(const std::string& key, const pb::EnrolRequest& request,
                         const pb::EnrolReply& reply, const Durable& durable) override;
  void coordinator_drops(const Hash& manifest, const Durable& durable) override;
  void daemon_stepped(const DaemonStep& step) override;
  void daemon_drains(const std::string& name, const daemon::SlotView& slot, Step trained) override;
  void daemon_stopped(const std::string& name) override;
  void violated(const std::string& id, const std::string& what) override;

 private:
  struct Head {
    std::string manifest;
    Step step = 0;
    std::string node;  // that held the lease
    bool is_acknowledged = false;
  };
  struct Expert {
    Epoch told;                        // the highest that left the coordinator
    std::vector<Head> history;         // every applied commit, the last one is the head
    std::size_t acknowledged = 0;      // so many of them were acknowledged
    std::map<std::string, Head> ever;  // by manifest, over all restores
    coordinator::ExpertView view;      // after the coordinator's last step
    bool seen = false;
  };
  struct Holder {
    std::string node;
    std::uint32_t slot = 0;
    std::uint64_t incarnation = 0;
    auto operator<=>(const Holder&) const = default;
  };
  struct Beat {
    std::uint64_t sequence = 0;
    std::optional<Duration> draining_since;
    Duration patience{};  // from then on it waits for copies so long at least
  };
  // What a node's process has told this start of the coordinator that it holds.
  struct Holdings {
    std::uint64_t incarnation = 0;
    std::uint64_t sequence = 0;
    bool is_lost = false;
    std::set<std::string> manifests;
  };
  // Versions of assignments up to this one were made by this batch or earlier
  // ones.
  struct Made {
    std::uint64_t version = 0;
    std::uint64_t batch = 0;
  };
  struct Drain {
    ExpertId expert;
    Epoch epoch;
    Step trained = 0;
  };
  template <class... Parts>
  void fail_if(bool broken, const char* id, const Parts&... parts) {
    if (broken) violated(id, text(parts...));
  }
  void hear(const coordinator::Received& event,
            const std::vector<coordinator::ExpertView>& experts);
  void look_at(const coordinator::ExpertView& now, bool is_tick);
  void check_word(const coordinator::Received& event, const coordinator::ExpertView& now);
  void look_after_start(const coordinator::ExpertView& now);
  void applied(Expert& expert, const coordinator::ExpertView& now);
  void check_weights(const Expert& expert, const coordinator::ExpertView& now);
  static bool was_deleted(const ExpertId& id, const Durable& durable);
  void epoch_told(const ExpertId& id, std::uint64_t epoch, const char* how, const Durable& durable);
  void head_told(const ExpertId& id, const std::string& manifest, const Durable& durable);
  void check_assignment(const std::string& node, const pb::Assignment& assignment,
                        const Durable& durable);
  void check_commit(const DaemonStep& step, const pb::Commit& commit);
  void check_drain(const DaemonStep& step);
  void check_drops(const DaemonStep& step);
  void check_copies(const Expert& expert, const coordinator::ExpertView& now);
  void hear_holdings(const coordinator::Received& event, const coordinator::Effects& effects);
  void look_at_writes(const CoordinatorStep& step);
  void check_attempts(const stored::Run& run, const std::vector<coordinator::ExpertView>& experts);
  void check_order(const std::vector<coordinator::ExpertView>& experts);
  void note_versions(const CoordinatorStep& step);
  void check_replicas(const DaemonStep& step);
  void check_recall(const CoordinatorStep& step);
  void hear_generation(const coordinator::Received& event, const coordinator::Core& core);
  bool is_known_lower(Epoch now, Epoch told) const {
    return now < told && (!is_behind_ || now.generation() >= told.generation() ||
                          heard_generation_ >= told.generation());
  }
  bool knows_revocation(const Durable& durable, const std::string& key) const;
  bool is_revoked(const std::string& key) const {
    return revoked_.contains(key) && !forgotten_.contains(key);
  }
  const std::string& node_of(const std::string& key) const;  // empty: of nobody

  World& world_;
  std::vector<Violation> violations_;
  std::uint64_t commits_ = 0;
  Duration last_commit_{};
  std::map<ExpertId, Expert> experts_;
  std::map<std::pair<ExpertId, std::uint64_t>, Holder> holders_;  // as made known by assignments
  std::map<std::string, std::set<std::string>>
      senders_;  // manifest → keys that sent a commit of it
  std::map<std::string, std::set<std::string>> enrolled_by_;  // token → keys with a certificate
  std::map<std::string, std::string> node_keys_;              // X25519 key → node id
  std::set<std::string> revoked_;                             // acknowledged; keys
  // Of them, those that no restored state knows and no record has brought back
  // yet, with the nodes that held one then.
  std::map<std::string, std::map<NodeId, std::string>> forgotten_;
  // A backup was restored that is older than one restored before. Until a node
  // reports the later generation, this start may grant epochs below earlier
  // ones. Nodes refuse them.
  bool is_behind_ = false;
  std::uint32_t told_generation_ = 0;   // of all epochs that were made known
  std::uint64_t heard_generation_ = 0;  // that nodes said to this start that they have seen
  bool must_recall_ = false;            // restored, and has not answered anybody since
  bool has_asked_ = false;              // for long enough, in a start since
  Duration started_{};
  std::set<std::string> brought_back_;  // of them, those that a record has; perhaps not durable yet
  bool recalls_ = false;                // the coordinator, after its last step
  std::set<NodeId> recalled_;           // nodes that it has asked
  std::map<std::string, std::map<ExpertId, std::string>>
      sent_;                        // daemon → the commits it waits for
  std::set<std::string> assigned_;  // daemons that were answered in this life
  std::map<std::string, std::map<std::uint32_t, Drain>>
      drains_;  // daemon → slots that trained when it began
  std::map<std::pair<std::string, ExpertId>, Step>
      taken_by_disk_;  // up to here a disk lost what a daemon had trained
  std::set<std::pair<ExpertId, NodeId>> gave_up_;
  std::map<std::string, std::string> hosts_;  // node id → host
  std::map<std::string, Holdings> holdings_;  // node id → what it says
  std::set<std::string> failed_runs_;
  std::vector<const coordinator::ExpertView*> granted_;  // in the step under way
  std::deque<Made> made_;                                // assignments that are not durable yet
  std::uint64_t durable_version_ = 0;
  std::uint64_t last_batch_ = 0;
  std::uint64_t persisted_ = 0;
  std::map<std::string, std::map<std::uint64_t, Beat>>
      beats_;  // node id → incarnation → its last heartbeat
  std::map<std::string, std::set<std::string>>
      replicas_;  // daemon → what it said that it is to hold
  std::map<std::string, std::uint64_t>
      applied_versions_;  // daemon → of its assignment, since its last Hello
  DiskRules disk_;
  Reader<stored::Expert> durable_experts_;
};

}  // namespace skerry::simulation
