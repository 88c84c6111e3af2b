// SPDX-License-Identifier: Apache-2.0
// Carries out the effects of a daemon's core, in the one order that all hosts
// keep:
//
//   1. log
//   2. write        the state goes to the disk first, so that what follows may depend on it
//   3. send
//   4. cancel, then fetch   an object that one step cancels and fetches begins anew
//   5. stop, plan, store    engines that run, before
//   6. start                those that take their place
//   7. drop         after the stores, and after the starts that read what is dropped
//   8. collect the log, wake, exit
//
// THREADS: one thread, the host's.
#pragma once

#include "daemon/core/effects.h"

namespace skerry::daemon {

// What a host does with each effect. A call may bring events about: the host
// queues them (base/event_queue.h).
class Sink {
 public:
  virtual ~Sink() = default;

  virtual void log(const LogEntry& entry) = 0;
  // Makes the state durable, after those before it; then the core is fed
  // Persisted. A later one may stand for earlier ones.
  virtual void write(const Write& write) = 0;
  // On control. What cannot be sent now is dropped: the core retries.
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
  // Boot time of the next Tick; none: no Tick is needed. Replaces the one
  // before.
  virtual void wake_at(std::optional<Duration> boot) = 0;
  // Engines are killed, the process ends.
  virtual void exit(int code) = 0;
};

void perform(const Effects& effects, Sink& sink);

}  // namespace skerry::daemon
