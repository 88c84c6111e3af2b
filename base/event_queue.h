// SPDX-License-Identifier: Apache-2.0
// Passes events to one handler, one after the other. An event that arrives
// while the handler runs waits for its turn. So the queue never enters a
// handler that is running, even if the handler's work leads to another feed().
//
// THREADS: one.
// ON FAILURE: an exception of the handler passes through feed(). That event is
// gone; those behind it stay.
#pragma once

#include <deque>
#include <functional>
#include <utility>

namespace skerry {

template <class Event>
class EventQueue {
 public:
  // LIFETIME: everything that `handle` refers to outlives the queue.
  explicit EventQueue(std::function<void(const Event&)> handle) : handle_(std::move(handle)) {}
  EventQueue(const EventQueue&) = delete;
  EventQueue& operator=(const EventQueue&) = delete;

  // Queues the event for the next drain().
  void push(Event event) { events_.push_back(std::move(event)); }

  // Handles the event and all events that follow from it before it returns.
  // From within a handler it is the same as push().
  void feed(Event event) {
    push(std::move(event));
    drain();
  }

  // Handles queued events until none is left. From within a handler it does
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

  // Drops the queued events. A handler may call it: no event follows the one
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
