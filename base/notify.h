// SPDX-License-Identifier: Apache-2.0
// Notifies a service manager (sd_notify): ready, alive, current status. Without
// a manager it does nothing; a manager that does not listen is no failure.
// THREADS: one.
#pragma once

#include <optional>
#include <string>

#include "base/clock.h"

namespace skerry {

class Notifier {
 public:
  Notifier();  // detects whether a watchdog waits
  void ready();
  void stopping();
  void status(const std::string& line);  // sent when it changes
  // Reports that the event loop runs, whenever such a report is due.
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
