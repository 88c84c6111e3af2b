// SPDX-License-Identifier: Apache-2.0
// What a service manager wants to hear (sd_notify): ready, alive, what it is
// doing. Without one, nothing happens, and a manager that does not listen is no
// failure of ours. One thread.
#pragma once

#include <optional>
#include <string>

#include "base/clock.h"

namespace skerry {

class Notifier {
 public:
  Notifier();  // finds out whether a watchdog waits
  void ready();
  void stopping();
  void status(const std::string& line);  // sent when it changes
  // Says that the event loop turns, when it is time to.
  void alive(Duration now);
  std::optional<Duration> next_alive() const {
    return every_ ? std::optional(next_) : std::nullopt;
  }

 private:
  std::optional<Duration> every_;
  Duration next_{};
  std::string status_;
};

}  // namespace skerry
