// SPDX-License-Identifier: Apache-2.0
// When an engine counts as hung, and how often one may be started again. Part
// of the core.
#pragma once

#include <deque>

#include "daemon/core/context.h"

namespace skerry::daemon {

inline constexpr Duration kHangLeast = seconds(60);  // no word for this long, or
inline constexpr int kHangFactor = 10;               // ten times the usual gap: killed
inline constexpr Duration kStartSilence =
    seconds(120);  // before Ready: one part of a start on a cold GPU and disk
inline constexpr Duration kFirstStepSilence =
    seconds(600);  // from Ready: nobody knows yet how long a step takes here
inline constexpr Duration kStallExcused =
    seconds(5);  // the daemon itself stood still: nobody is to blame

// The usual gap between an engine's words, slowly forgotten.
class HangWatch {
 public:
  void starting(Duration now);  // its program was started, or it begins the next part of its start
  void heard(Duration now);     // Ready, and every word after it
  // It waits for us: its silence is no sign.
  void hold(Duration now) { last_ = now; }
  // The time at which the engine counts as hung. Never, until its program was
  // started: what is read for it before that waits for our disk.
  Duration limit() const;
  // The daemon did not run for this long, and cannot have heard anything.
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
