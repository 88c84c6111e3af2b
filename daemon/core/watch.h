// SPDX-License-Identifier: Apache-2.0
// Hang detection and the restart budget of engines. Part of the core.
#pragma once

#include <deque>

#include "daemon/core/context.h"

namespace skerry::daemon {

// An engine is hung after max(kHangLeast, kHangFactor · usual gap) without a
// message.
inline constexpr Duration kHangLeast = seconds(60);
inline constexpr int kHangFactor = 10;
// Before Ready: for one phase of a start with a cold GPU and disk.
inline constexpr Duration kStartSilence = seconds(120);
// After Ready, for the first step: its duration is not known yet.
inline constexpr Duration kFirstStepSilence = seconds(600);
// If the daemon itself stalled for longer, it extends the engines' deadlines.
inline constexpr Duration kStallExcused = seconds(5);

// Detects a hung engine by the usual gap between its messages, whose estimate
// decays slowly.
class HangWatch {
 public:
  void starting(Duration now);  // its program was started, or its start entered the next phase
  void heard(Duration now);     // Ready, and every message after it
  // The engine waits for the daemon: its silence does not count.
  void hold(Duration now) { last_ = now; }
  // RETURNS: when the engine counts as hung; kNever until its program was
  // started, because reads before that wait for the daemon's own disk.
  Duration limit() const;
  // The daemon stalled for this long and received no message.
  void excuse(Duration stalled) { last_ += stalled; }

 private:
  Duration last_{};
  Duration usual_{};
  bool spoke_ = false;
  bool ready_ = false;
  bool stepped_ = false;
};

inline constexpr std::size_t kFailuresAllowed = 5;  // within the window, without an accepted commit
inline constexpr Duration kFailureWindow = std::chrono::hours(1);
inline constexpr Duration kRestartFirst = seconds(1);
inline constexpr Duration kRestartLast = seconds(30);

class RestartBudget {
 public:
  void failed(Duration now);
  void succeeded() { failures_.clear(); }
  bool is_used_up() const { return failures_.size() >= kFailuresAllowed; }
  Duration wait() const;  // before the next start

 private:
  std::deque<Duration> failures_;
};

}  // namespace skerry::daemon
