// SPDX-License-Identifier: Apache-2.0
// A slot: at most one expert, at most one engine process. Part of the core.
// Its lease may hold further slots, whose cards its engine trains on too.
//
// The engine produces checkpoints; the commits get them accepted. The two run
// concurrently and share only Work. In every step advance() derives the slot's
// next action from its current state, not from a script. So a restart, a lost
// message or a new assignment needs no special case.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "daemon/core/cards.h"
#include "daemon/core/context.h"
#include "daemon/core/core.h"
#include "daemon/core/objects.h"
#include "daemon/core/session.h"
#include "daemon/core/watch.h"
#include "daemon/core/work.h"
#include "protocol/limits.h"

namespace skerry::daemon {

inline constexpr Duration kStoreRetry = seconds(5);  // after a full disk; L6
inline constexpr Duration kCommitRetryFirst = milliseconds(500);
inline constexpr Duration kCommitRetryLast = seconds(5);
// How long a restarted daemon waits for its first assignment.
inline constexpr Duration kRestoredWait = seconds(10);
inline constexpr Duration kKillRetry = seconds(5);
// If a killed engine has not exited by then, the driver holds it.
inline constexpr Duration kStuckAfter = seconds(30);
inline constexpr std::size_t kReportLines = 40;

// RETURNS: seconds a byte; none of an object without bytes.
std::optional<double> cost_of(Duration took, const pb::ObjectRef& object);

class Slot {
 public:
  Slot(pb::Slot description, Objects& objects, Session& session, Cards& cards,
       std::uint64_t& last_engine);

  // ---- Commands ----
  // Resumes work after the daemon's restart.
  void restore(Work work, Duration now);
  // `next`: nullptr for no work. The slot never resumes an epoch that it
  // returned, that was fenced, or that a later one replaced.
  void assign(const pb::SlotAssignment* next, bool draining, Context& context);
  // Commits what is in flight, and a last snapshot if both can be through by
  // `until`. Then returns the lease.
  void drain(Duration until);
  void stay();  // takes drain() back
  void renewed(const pb::RenewedLease& lease, Duration until);
  void excuse(Duration stalled);
  void cards_counted() { counts_cards_ = false; }

  // ---- Events ----
  void on(const EngineStarting& event, Context& context);
  void on(const EngineReady& event, Context& context);
  void on(const EngineProgress& event, Context& context);
  void on(const EngineSnapshot& event, Context& context);
  void on(const EngineFailed& event, Context& context);
  void on(const EngineFinished& event, Context& context);
  void on(const EngineExited& event, Context& context);
  void on(const SnapshotStored& event, Context& context);
  void on(const SnapshotFailed& event, Context& context);
  bool is_commit(std::uint64_t id) const { return commit_id_ != 0 && id == commit_id_; }
  void on_commit(const pb::CommitReply& reply, Context& context);
  void on_commit_error(const pb::Error& error, Context& context);
  void connection_lost();
  void object_failed(const Hash& manifest, const Error& error, Context& context);

  // Takes the actions that are due, and names the objects it needs.
  void advance(Context& context);

  // ---- Status ----
  const std::optional<Work>& work() const { return work_; }
  bool is_clear() const { return !work_ && !engine_; }
  pb::SlotStatus status() const;
  pb::HeldLease held() const;  // REQUIRES: work()
  SlotView view(Duration now) const;

 private:
  enum class EnginePhase {
    kStarting,  // waits for Ready; at most HangWatch::limit() for each message before it
    kTraining,  // waits for the next message, at most until HangWatch::limit()
    kStopping,  // was told to exit; waits for Exited under the same limit
    kKilled,    // waits for Exited; killed again after kKillRetry
  };
  struct Engine {
    std::uint64_t id = 0;
    EnginePhase phase = EnginePhase::kStarting;
    HangWatch watch;
    Duration killed_at{};
    Duration kill_again{};
    bool abandoned = false;  // the slot dropped its work and only waits for its exit
    bool finished = false;
    bool by_request = false;  // exits because it was told to
    bool progressed = false;
    Step step = 0;
    double loss = 0;
    double samples_per_second = 0;
    std::string starting;  // the phase before Ready
    std::string fingerprint;
    std::string failure_reason;
    std::optional<pb::EngineEvent::Failure> failure;
    pb::EngineRequest::RoundPlan plan;
    Step steps_target = 0;
    SlotIndices cards;  // the slots of these
  };
  struct Storing {
    std::uint64_t engine = 0;
    Checkpoint checkpoint;  // has no name yet
    StoreSnapshot order;
    Duration since{};
    Duration retry_at = kNever;
    bool reported = false;
  };
  enum class Leaving { kNo, kYield, kDrain };
  enum class Block {
    kNone,
    kNonFinite,  // waits for a new attempt
    kGivenUp,    // restarts are used up; the lease is being returned
  };

  // slot_assign.cc
  void update(const pb::SlotAssignment& next, Context& context);
  void adopt_head(const pb::ObjectRef& head, Step step, Context& context);
  void discard(const std::string& why, LogLevel level, Context& context);
  void rewind(const pb::ObjectRef& head, Step step, const std::string& why, Context& context);
  void leave_behind();  // this epoch of this expert is never resumed
  bool is_behind(const pb::SlotAssignment& next) const;
  void give_back(const std::string& reason, Context& context);
  void forget_uncommitted();

  // slot_engine.cc
  Engine* current(std::uint64_t id);
  bool should_train(Context& context) const;
  SlotIndices cards() const;
  bool wants_other_cards() const;
  void give_up_card(Context& context);
  std::string card_names(const SlotIndices& cards) const;
  bool is_over_offline_limit(Context& context) const;
  void start_engine(Context& context);
  void steer_engine(Context& context);
  void stop_engine(StopKind kind, Context& context);
  void abandon_engine(Context& context);
  bool has_stuck_engine(Context& context) const;
  void give_up_stuck(Context& context);
  std::optional<double> needs_unsent(Duration now) const;
  bool fits_last_snapshot(Duration now) const;
  bool gives_up_unsent(Duration now) const;
  bool wants_end(Context& context) const;
  void failed(pb::EngineEvent::Failure failure, const std::string& reason,
              const std::vector<std::string>& lines, Context& context);
  void report(pb::EngineEvent::Failure failure, const std::string& reason,
              const std::vector<std::string>& lines, bool gives_up);
  void resume_failed(const Error& error, Context& context);

  // slot_commit.cc
  bool has_lease(Duration now) const { return work_ && now < lease_until_; }
  void commit_if_due(Context& context);
  void send_commit(Context& context);
  void accepted(const pb::CommitReply& reply, Context& context);
  std::string label() const;

  pb::Slot description_;
  Objects& objects_;
  Session& session_;
  Cards& cards_;
  std::uint64_t& last_engine_;

  std::optional<Work> work_;
  std::optional<Engine> engine_;
  std::optional<Storing> storing_;
  Leaving leaving_ = Leaving::kNo;
  Duration drain_until_{};  // while it drains
  // Seconds a byte, of the last snapshot stored and the last commit accepted
  // here; none: not measured yet. The others' use of disk and line is in them,
  // as are the coordinator's check and the copies that it waited for.
  std::optional<double> store_cost_;
  std::optional<double> commit_cost_;
  Block block_ = Block::kNone;
  bool counts_cards_ = false;  // an engine on several lost one: which, the host finds out
  RestartBudget budget_;
  Duration start_after_{};       // wait before the next engine start
  Duration lease_until_{};       // valid before this
  unsigned offline_rounds_ = 0;  // snapshots stored without a valid lease
  std::uint64_t commit_id_ = 0;  // open request; 0: none
  Duration commit_retry_{};
  unsigned commit_tries_ = 0;
  std::optional<Duration> commit_since_;  // none: a lost connection interrupted it
  std::map<ExpertId, Epoch> behind_;
  // Checkpoints of dropped work, kept until a newer assignment omits them.
  std::vector<pb::ObjectRef> left_;
};

}  // namespace skerry::daemon
