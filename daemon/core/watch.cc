// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/watch.h"

namespace skerry::daemon {

void HangWatch::starting(Duration now) {
  last_ = now;
  spoke_ = true;
}

void HangWatch::heard(Duration now) {
  if (ready_) usual_ = std::max(now - last_, usual_ - usual_ / 16);
  stepped_ = ready_;
  spoke_ = ready_ = true;
  last_ = now;
}

Duration HangWatch::limit() const {
  if (!spoke_) return kNever;
  if (!ready_) return last_ + kStartSilence;
  return last_ + (stepped_ ? std::max(kHangLeast, usual_ * kHangFactor) : kFirstStepSilence);
}

void RestartBudget::failed(Duration now) {
  while (!failures_.empty() && failures_.front() + kFailureWindow < now) failures_.pop_front();
  failures_.push_back(now);
}

Duration RestartBudget::wait() const {
  if (failures_.empty()) return {};
  return std::min(kRestartFirst * (1U << std::min<std::size_t>(failures_.size() - 1, 10)),
                  kRestartLast);
}

}  // namespace skerry::daemon
