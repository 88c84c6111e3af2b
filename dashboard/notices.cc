// SPDX-License-Identifier: Apache-2.0
#include "dashboard/notices.h"

#include <algorithm>

namespace skerry::dashboard {

std::string notice_kind(const pb::Event& event) {
  const std::string& kind = event.kind();
  if (kind == "expert_done" || kind == "node_lost" || kind == "budget") return kind;
  if (kind == "engine_failed") return "expert_stuck";
  if (kind == "disk_full") return "disk_low";
  if (kind != "run_state") return "";
  for (const char* end : {"done", "failed", "stopped"}) {
    if (event.reason().starts_with(end)) return "run_done";
  }
  return "";
}

void Notices::offer(const std::vector<pb::Event>& events) {
  if (!std::exchange(started_, true)) {
    const std::uint64_t newest = events.empty() ? 0 : events.back().number();
    if (!cursor_ || newest < *cursor_) cursor_ = newest;
  }
  for (const pb::Event& event : events) {
    const std::uint64_t last = queue_.empty() ? *cursor_ : queue_.back().number();
    if (event.number() <= last || notice_kind(event).empty()) continue;
    queue_.push_back(event);
    if (queue_.size() <= kQueued) continue;
    ++dropped_;
    drop_first();
  }
}

const pb::Event* Notices::due(Duration now) const {
  return queue_.empty() || now < not_before_ ? nullptr : &queue_.front();
}

void Notices::sent() { drop_first(); }

bool Notices::failed(Duration now) {
  if (++tries_ >= kTries) {
    drop_first();
    return true;
  }
  const Duration pause = kFirstPause * (std::int64_t{1} << std::min(tries_ - 1, 20));
  not_before_ = now + std::min<Duration>(pause, kLongestPause);
  return false;
}

void Notices::drop_first() {
  cursor_ = queue_.front().number();
  queue_.pop_front();
  tries_ = 0;
  not_before_ = {};
}

}  // namespace skerry::dashboard
