// SPDX-License-Identifier: Apache-2.0
// What must hold after every step of every core, by the ids of
// docs/internals/reliability.md. Written from the rules alone: it keeps its own
// account of what was granted, committed, acknowledged, revoked and enrolled,
// and compares.
//
//   S1       one holder for each (expert, epoch), and a process that may commit under the current epoch is that holder;
//            nobody commits past its lease
//   S2       what is applied carries the epoch that is current, by the node that holds it
//   S3       epochs that were made known never go back and are never given twice, over restarts and restores too. After a
//            backup that is older than one restored before: once a node has said which generation it saw
//   S4       what durable state names is on the disk (checked by the hosts)
//   copies   a commit is applied once as many hosts as its places are, none of them its committer's, hold it: each by the last
//            heartbeat of a process that is neither lost nor followed by another, heard since the coordinator's start. Or once
//            its committer has been going away for long. What a node reports is on its disk, and it drops no replica that it
//            was told to hold
//   S5       a head is followed by its child only, each once; a head once acknowledged never goes back
//   S6       after a crash the disk holds whole batches and whole objects
//   S7       what is said is durable: grants, renewals, acceptances, enrolments, revocations, versions of assignments
//   S8       nothing is dropped that durable or pending state names, or a commit that is pending; a daemon keeps its head and
//            what it has sent, and drops nothing before a coordinator has answered it
//   S9       the spans of an expert's commits follow upon each other without a gap
//   S12      a commit is applied in the name of the node whose key sent it
//   S13      a token enrols at most its number of keys, and none after its end
//   S14      a revoked key is told nothing but errors once its revocation was acknowledged, nothing of its is applied, and the
//            transport does not let it in; a restored coordinator answers nobody before it asked the nodes, and knows again
//            what one of those held that it asked
//   engine   an engine is given what it can use, while no disk loses bytes
//   S15      messages and the event log keep their bounds
//   S16      a state that was saved can be loaded (checked by the hosts)
//   events   no event takes a number that an earlier one had, also after a start
//   order    of the experts of a run that wait, the furthest behind is granted first, unless it is to avoid the node
//   attempts a run fails for want of attempts only where one expert used all of them since its last commit
//   assignment  a node never goes back to an older assignment between two Hellos
//   drain    a node that drains gives back no lease whose work it has not committed
//   weights  each head's weights are its parent's, trained by exactly the steps between, and no other
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
  // This node has said so of this expert: it may be avoided for a while.
  bool gave_up(const ExpertId& expert, const NodeId& node) const {
    return gave_up_.contains({expert, node});
  }

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
  void look_at(const coordinator::ExpertView& now);
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
  // A backup was restored that is older than one that was restored before:
  // until a node that saw the later generation has said so, this start may
  // grant epochs that are below those of before. Nodes refuse them.
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
