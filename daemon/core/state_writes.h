// SPDX-License-Identifier: Apache-2.0
// Chooses the state that the host writes again after the disk was full.
//
// THREADS: the host's loop.
#pragma once

#include <optional>

#include "base/clock.h"
#include "daemon/core/effects.h"

namespace skerry::daemon {

class StateWrites {
 public:
  static constexpr Duration kRetry = std::chrono::seconds(2);

  // The host hands `write` to the disk. REQUIRES: the disk carries writes out
  // in this order.
  void started(const Write& write) { newest_ = write; }
  void saved(const Write& write);
  // The disk had no room for it.
  void refused(Duration now);
  // RETURNS: the state to write now, because an earlier write found no room;
  // always the newest.
  std::optional<Write> due(Duration now);

 private:
  Write newest_;
  std::optional<Duration> retry_at_;  // while newest_ may not be on the disk for want of room
};

}  // namespace skerry::daemon
