// SPDX-License-Identifier: Apache-2.0
// What reaches a process: at once, or, while it stands still, when it goes on.
#pragma once

#include <deque>
#include <functional>
#include <utility>

namespace skerry::simulation {

class Inbox {
 public:
  bool is_closed() const { return is_closed_; }
  void close() { is_closed_ = true; }
  void open() { is_closed_ = false; }
  // Of a new life: open, and nothing in it.
  void clear() {
    is_closed_ = false;
    waiting_.clear();
  }

  template <class Action>
  void deliver(Action&& action) {
    if (is_closed_) {
      waiting_.emplace_back(std::forward<Action>(action));
    } else {
      action();
    }
  }

  // What came meanwhile, in order, while the process lives on and does not
  // stand still again.
  template <class Lives>
  void catch_up(Lives&& lives) {
    while (!waiting_.empty() && lives() && !is_closed_) {
      const auto action = std::move(waiting_.front());
      waiting_.pop_front();
      action();
    }
  }

 private:
  bool is_closed_ = false;
  std::deque<std::function<void()>> waiting_;
};

}  // namespace skerry::simulation
