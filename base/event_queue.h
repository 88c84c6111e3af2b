// SPDX-License-Identifier: Apache-2.0
// Hands events to one handler, one after the other. An event that arrives while
// another is handled waits for its turn, so a handler is never entered twice at
// a time, however its work comes round to whoever feeds the queue.
//
// THREADS: one thread.
// ON FAILURE: an exception of the handler passes through feed(); the event is
// gone, those behind it stay.
#pragma once

#include <deque>
#include <functional>
#include <utility>

namespace skerry {

template <class Event>
class EventQueue {
 public:
  // LIFETIME: what `handle` refers to outlives the queue.
  explicit EventQueue(std::function<void(const Event&)> handle) : handle_(std::move(handle)) {}
  EventQueue(const EventQueue&) = delete;
  EventQueue& operator=(const EventQueue&) = delete;

  // Queues the event for the next drain().
  void push(Event event) { events_.push_back(std::move(event)); }

  // Handles the event, and all that it brings about, before it returns. Called
  // by a handler: push() alone.
  void feed(Event event) {
    push(std::move(event));
    drain();
  }

  // Handles what is queued until nothing is left. Called by a handler: does
  // nothing.
  void drain() {
    during([] {});
  }

  // Runs `work` as if it handled an event, then drains.
  template <class Work>
  void during(const Work& work) {
    if (busy_) return;
    const Busy busy(busy_);
    work();
    while (!events_.empty()) {
      const Event event = std::move(events_.front());
      events_.pop_front();
      handle_(event);
    }
  }

  // Forgets what is queued. A handler may call it: nothing follows the event
  // that it handles then.
  void clear() { events_.clear(); }

 private:
  class Busy {
   public:
    explicit Busy(bool& busy) : busy_(busy) { busy_ = true; }
    ~Busy() { busy_ = false; }
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;

   private:
    bool& busy_;
  };

  std::function<void(const Event&)> handle_;
  std::deque<Event> events_;
  bool busy_ = false;
};

}  // namespace skerry
