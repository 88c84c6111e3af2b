// SPDX-License-Identifier: Apache-2.0
#include "coordinator/host/request_rate.h"

#include <algorithm>
#include <utility>

namespace skerry::coordinator {

RequestRate::Verdict RequestRate::ask(const std::string& key, Duration now) {
  Key& asked = keys_[key];
  const Duration paid_until = std::max(asked.paid_until, now) + kRequestInterval;
  if (paid_until - now > kRequestsAtOnce * kRequestInterval)
    return std::exchange(asked.was_dropped, true) ? Verdict::kDropped : Verdict::kFirstDropped;
  asked = {paid_until, false};
  return Verdict::kHeard;
}

void RequestRate::forget(Duration now) {
  std::erase_if(keys_, [&](const auto& key) { return key.second.paid_until <= now; });
}

}  // namespace skerry::coordinator
