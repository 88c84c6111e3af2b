// SPDX-License-Identifier: Apache-2.0
// Chooses the state that the host writes again after the disk was full.
//
// THREADS: one, the host's loop.
#pragma once

#include <optional>

#include "base/clock.h"
#include "daemon/core/effects.h"

namespace skerry::daemon {

class StateWrites {
 public:
  static constexpr Duration kRetry = std::chrono::seconds(2);

  // The host passes `write` to the disk.
  // REQUIRES: the disk applies writes in this order.
  void started(const Write& write) { newest_ = write; }
  void saved(const Write& write);
  // The disk had no room for it.
  void refused(Duration now);
  // RETURNS: the newest state, if it must be written now because an earlier
  // write found no room.
  std::optional<Write> due(Duration now);

 private:
  Write newest_;
  std::optional<Duration> retry_at_;  // set while newest_ may be missing on a full disk
};

}  // namespace skerry::daemon
