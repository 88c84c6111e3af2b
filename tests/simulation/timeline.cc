// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/timeline.h"

#include <algorithm>
#include <utility>

namespace skerry::simulation {

void Timeline::at(Duration when, Action action) {
  if (free_.empty()) {
    free_.push_back(actions_.size());
    actions_.emplace_back();
  }
  actions_[free_.back()] = std::move(action);
  queue_.push({std::max(when, now_), planned_++, free_.back()});
  free_.pop_back();
}

bool Timeline::run_next() {
  if (queue_.empty()) return false;
  const Planned next = queue_.top();
  queue_.pop();
  now_ = next.when;
  ++events_;
  const Action action = std::exchange(actions_[next.place], {});
  free_.push_back(next.place);
  action();
  return true;
}

void Timeline::run_until(Duration end, const std::function<bool()>& stop) {
  while (!queue_.empty() && queue_.top().when <= end) {
    if (stop()) return;
    run_next();
  }
  now_ = std::max(now_, end);
}

}  // namespace skerry::simulation
