// SPDX-License-Identifier: Apache-2.0
#include "base/notify.h"

#include <systemd/sd-daemon.h>

namespace skerry {

Notifier::Notifier() {
  std::uint64_t limit_us = 0;
  if (sd_watchdog_enabled(0, &limit_us) > 0) every_ = std::chrono::microseconds(limit_us / 3);
}

void Notifier::ready() { (void)sd_notify(0, "READY=1"); }

void Notifier::stopping() { (void)sd_notify(0, "STOPPING=1"); }

void Notifier::status(const std::string& line) {
  if (line == status_) return;
  status_ = line;
  (void)sd_notify(0, ("STATUS=" + line).c_str());
}

void Notifier::alive(Duration now) {
  if (!every_ || now < next_) return;
  next_ = now + *every_;
  (void)sd_notify(0, "WATCHDOG=1");
}

}  // namespace skerry
