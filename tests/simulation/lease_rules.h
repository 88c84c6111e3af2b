// SPDX-License-Identifier: Apache-2.0
// When a lease may end and who may receive one (S1, L1, L4), from the messages
// that reached the coordinator's process and its answers. It does not use the
// core's own account. The times are those of Config; clocks may drift by
// kDrift.
//
// - S1: after a lease ended by silence, no process trusts it, then or later.
// - L4: a lease ends by silence only after its time and the grace, or a second
//   after its connection closed. It never ends in the recovery window or
//   because the coordinator stood still, and only few end at once. A message
//   counts when it reached the process. Messages that queue up while the
//   process stands still end a silence, too. They do not undo an earlier
//   silence that was longer than the lease. A connected node keeps its lease
//   unless it has committed nothing for Config::stall.
// - stall: a lease ends if its node tells of no further step or fetched byte
//   for Config::stall. Time in which a commit of it waits does not count, nor
//   time in which the coordinator has no room for one.
// - avoid: a node that gave an expert up is not given it again within
//   Config::avoid while its process lives.
// - L1: a heartbeat that is not newer than the last answered one gets no
//   answer.
// - cordon: a cordoned or draining node is given nothing. A cordon ends when
//   the roster forgets the node.
// - slot: a slot has at most one lease.
// - card: an engine starts on cards that its lease has or had. A commit says
//   how many trained its steps.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "tests/simulation/world.h"

namespace skerry::simulation {

class LeaseRules final : public Watcher {
 public:
  LeaseRules(World& world, const coordinator::Config& config) : world_(world), config_(config) {}

  void coordinator_started(const coordinator::Core& core, const Durable& durable) override;
  void coordinator_stopped() override;
  void coordinator_stepped(const CoordinatorStep& step) override;
  void coordinator_hears(const coordinator::ConnectionId& connection, const std::string& key,
                         const pb::ControlRequest& request) override;
  void coordinator_loses(const coordinator::ConnectionId& connection) override;
  void coordinator_stood_still(Duration lag) override;
  void daemon_stepped(const DaemonStep& step) override;

 private:
  static constexpr double kDrift = 0.01;
  // A node as its messages tell of it.
  struct Node {
    coordinator::ConnectionId connection;  // that was greeted; empty: closed
    std::uint64_t incarnation = 0;
    std::uint64_t sequence = 0;
    std::uint64_t answered = 0;  // the sequence of the last heartbeat that was
    Duration heard{};
    Duration
        // the longest between two of its words since the last one that the core
        // has read
        silence{};
    Duration closed{};
  };
  struct Avoided {
    std::uint64_t incarnation = 0;
    Duration until{};
  };
  void take_word(const coordinator::Core& core, const coordinator::Received& event,
                 const coordinator::Effects& effects);
  // What an engine trained at once, until its snapshot is stored.
  struct Span {
    Step from = 0;
    std::size_t cards = 0;
  };
  void take_slots(const coordinator::ExpertView& expert);
  void check_commit(const std::string& name, const pb::Commit& commit);
  void avoid(const ExpertId& expert, const NodeId& node, std::uint64_t incarnation);
  void take_admin(const pb::AdminRequest& request);
  void look_at(const std::vector<coordinator::ExpertView>& experts, bool is_tick);
  void take_status(const NodeId& node, const pb::SlotStatus& status);
  // No lease has stalled before that.
  void begin_again(Duration at);
  void check_stalls(const std::vector<coordinator::ExpertView>& experts);
  void check_slots(const std::vector<coordinator::ExpertView>& experts);
  void lapsed(const coordinator::ExpertView& expert);
  void ended_early(const coordinator::ExpertView& expert, const Node& holder);
  void granted(const coordinator::ExpertView& expert);

  World& world_;
  const coordinator::Config& config_;
  Duration started_{};
  Duration lagged_{};
  bool has_lagged_ = false;
  std::map<std::string, std::string> ids_;                        // key → node
  std::map<std::string, Node> nodes_;                             // by id
  std::map<coordinator::ConnectionId, std::string> connections_;  // greeted → node
  std::map<coordinator::ConnectionId, Duration> lost_;            // when
  std::set<std::string> cordoned_;
  std::set<std::string> draining_;
  std::map<ExpertId, coordinator::ExpertView> views_;
  std::map<ExpertId, Duration> committed_;  // or granted, when last
  // Of a lease: when it last came nearer to a commit, and how far it was.
  struct Progress {
    Duration at{};
    std::uint64_t step = 0, fetched = 0;
  };
  std::map<ExpertId, Progress> progress_;
  bool lacks_room_ = false;  // the coordinator's disk, which holds every commit up
  std::map<std::pair<ExpertId, NodeId>, Avoided> avoided_;
  std::set<std::tuple<ExpertId, Epoch, NodeId>> gives_up_;               // in the step under way
  std::map<std::pair<ExpertId, Epoch>, std::set<std::uint32_t>> slots_;  // at any time
  std::map<std::pair<std::string, std::uint64_t>, Span> engines_;        // of daemons, by name
  std::map<std::string, Span> snapshots_;                                // by manifest
  std::set<std::pair<ExpertId, Epoch>> silent_;                          // lapsed by silence
  std::set<std::pair<ExpertId, Epoch>> over_;  // and given to another since
  std::deque<std::pair<Duration, std::string>> early_ends_;
};

}  // namespace skerry::simulation
