// SPDX-License-Identifier: Apache-2.0
// Carries out the effects of a daemon's core in the order that all hosts keep:
//
//   1. log
//   2. write        before all that may depend on the state
//   3. send
//   4. cancel, then fetch   an object in both is fetched anew
//   5. stop, plan, store    running engines, before
//   6. start                the engines that replace them
//   7. drop         after the stores and starts, which read these objects
//   8. collect the log, --idle-exec, count the cards, wake, exit
//
// THREADS: one, the host's.
#pragma once

#include "daemon/core/effects.h"

namespace skerry::daemon {

// How a host carries out each effect. A call may cause events: the host queues
// them (base/event_queue.h).
class Sink {
 public:
  virtual ~Sink() = default;

  virtual void log(const LogEntry& entry) = 0;
  // Makes the state durable after all earlier writes, then feeds Persisted to
  // the core. The host may skip a write if it applies a later one.
  virtual void write(const Write& write) = 0;
  // Sends on control. An unsendable request is dropped: the core retries.
  virtual void send(const pb::ControlRequest& request) = 0;
  virtual void cancel(const Hash& object) = 0;
  virtual void fetch(const FetchObject& order) = 0;
  virtual void stop(const StopEngine& order) = 0;
  virtual void plan(const PlanRound& order) = 0;
  virtual void store(const StoreSnapshot& order) = 0;
  virtual void start(const StartEngine& order) = 0;
  virtual void drop(const DropObject& order) = 0;
  // Answered by LogCollected.
  virtual void collect_log(std::uint64_t request) = 0;
  virtual void idle_exec(IdleExecOrder order) = 0;
  // Answered by CardsCounted.
  virtual void count_cards() = 0;
  // `boot`: boot time of the next Tick; none: no Tick is needed. Replaces the
  // earlier wake-up.
  virtual void wake_at(std::optional<Duration> boot) = 0;
  // Kills the engines and ends the process.
  virtual void exit(int code) = 0;
};

void perform(const Effects& effects, Sink& sink);

}  // namespace skerry::daemon
