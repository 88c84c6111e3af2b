// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/state_writes.h"

namespace skerry::daemon {

void StateWrites::saved(const Write& write) {
  if (write.ticket == newest_.ticket) retry_at_.reset();
}

void StateWrites::refused(Duration now) { retry_at_ = now + kRetry; }

std::optional<Write> StateWrites::due(Duration now) {
  if (!retry_at_ || now < *retry_at_) return std::nullopt;
  retry_at_.reset();
  return newest_;
}

}  // namespace skerry::daemon
