// SPDX-License-Identifier: Apache-2.0
// What the parts of the core share during one step: where effects go, the time,
// and the next moment of interest.
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
  bool dirty = false;  // the saved state is no longer what it was

  void wake(Duration at) {
    if (at == kNever) return;
    out.wake_at = out.wake_at ? std::min(*out.wake_at, at) : at;
  }
  // True once `at` has come; until then asks to be woken.
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
