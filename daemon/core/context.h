// SPDX-License-Identifier: Apache-2.0
// The state that the parts of the core share during a step: the effects, the
// time, and the next wake-up.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/ids.h"
#include "daemon/core/effects.h"

namespace skerry::daemon {

using std::chrono::milliseconds;
using std::chrono::seconds;

inline constexpr Duration kNever = Duration::max();

struct Context {
  Effects& out;
  Now now;
  bool dirty = false;  // the state changed and must be saved

  void wake(Duration at) {
    if (at == kNever) return;
    out.wake_at = out.wake_at ? std::min(*out.wake_at, at) : at;
  }
  // RETURNS: true once `at` has passed; until then false, and requests a Tick
  // at that time.
  bool due(Duration at) {
    if (at <= now.boot) return true;
    wake(at);
    return false;
  }
  void log(LogLevel level, std::string message) { out.log.push_back({level, std::move(message)}); }
};

inline ExpertId expert_of(const std::string& run, std::uint32_t index) {
  return ExpertId{RunId(run), index};
}

}  // namespace skerry::daemon
