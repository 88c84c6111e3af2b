// SPDX-License-Identifier: Apache-2.0
// The virtual clock of a simulation and its events, in one thread. Events of
// one moment run in the order in which they were added.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

#include "base/clock.h"

namespace skerry::simulation {

class Timeline {
 public:
  using Action = std::function<void()>;

  Duration now() const { return now_; }
  void at(Duration when, Action action);
  void after(Duration delay, Action action) { at(now_ + delay, std::move(action)); }
  // Carries out the next event. False if there is none.
  bool run_next();
  // Everything up to and at `end`, unless `stop` says so before an event; the
  // clock then stands at `end`.
  void run_until(Duration end, const std::function<bool()>& stop);
  // RETURNS: the time of the next event; Duration::max() if there is none.
  Duration next() const { return queue_.empty() ? Duration::max() : queue_.top().when; }
  std::uint64_t events() const { return events_; }

 private:
  struct Planned {
    Duration when;
    std::uint64_t number;
    std::size_t place;  // of its action
    bool operator>(const Planned& other) const {
      return when != other.when ? when > other.when : number > other.number;
    }
  };
  Duration now_{};
  std::uint64_t planned_ = 0;
  std::uint64_t events_ = 0;
  std::priority_queue<Planned, std::vector<Planned>, std::greater<>> queue_;
  std::vector<Action> actions_;    // of queued events: the queue sorts small things
  std::vector<std::size_t> free_;  // places among them
};

}  // namespace skerry::simulation
