// SPDX-License-Identifier: Apache-2.0
// When a node without work runs its --idle-exec. Part of the core.
//
// It asks the coordinator first: no run may wait, and no copy may rest on this
// node alone. Once it may stop, it gets no lease until a heartbeat says that it
// is not idle. So the command never runs under a lease. It runs once, and again
// only after the node has had work.
#pragma once

#include <string>

#include "daemon/core/context.h"
#include "daemon/core/event.h"

namespace skerry::daemon {

// A command that runs longer is killed.
inline constexpr Duration kIdleExecLimit = seconds(60);
// A node that still lives so long after its command has ended works again.
inline constexpr Duration kIdleLivesOn = seconds(60);

class Idle {
 public:
  // `limit`: how long without work; 0: there is no command.
  explicit Idle(Duration limit) : limit_(limit) {}

  // Waits for nobody, but:
  //   - kWorks, kRests: until there is no work for `limit`, then kAsks
  //   - kAsks: for the coordinator's word, then kRuns; back to kWorks on work
  //   - kRuns: for the command's end, at most kIdleExecLimit, then kEnded or,
  //     where it failed, kSpent
  //   - kEnded: for kIdleLivesOn, then kSpent
  //   - kSpent: for work, then kWorks
  enum class Phase { kWorks, kRests, kAsks, kRuns, kEnded, kSpent };

  // `leaves`: the node ends, and asks nothing any more. The command runs on: it
  // may be what ends the node.
  // RETURNS: true if the next heartbeat must not wait.
  bool advance(bool has_work, bool leaves, Context& context);
  // The answer to a heartbeat that asked.
  void may_stop(Context& context);
  void ended(const IdleExecEnded& event, Context& context);

  Phase phase() const { return phase_; }
  bool asks() const { return phase_ == Phase::kAsks || is_stopping(); }
  bool is_stopping() const { return phase_ == Phase::kRuns || phase_ == Phase::kEnded; }
  // For people: what happens; empty: nothing.
  const std::string& words() const { return words_; }

 private:
  void kill(Context& context);

  Duration limit_;
  Phase phase_ = Phase::kWorks;
  Duration since_{};  // of kRests
  Duration until_{};  // of kRuns and kEnded
  bool killed_ = false;
  std::string words_;
};

}  // namespace skerry::daemon
