#include "tests/simulation/timeline.h"

#include <algorithm>
#include <utility>

namespace skerry::simulation {

void Timeline::at(Duration when, Action action) {
  queue_.push({std::max(when, now_), planned_++, std::move(action)});
}

bool Timeline::run_next() {
  if (queue_.empty()) return false;
  // The queue gives only const access to its top; the element is removed before anything can look at it again.
  Planned next = std::move(const_cast<Planned&>(queue_.top()));
  queue_.pop();
  now_ = next.when;
  ++events_;
  next.action();
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
