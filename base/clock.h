// SPDX-License-Identifier: Apache-2.0
// Time as an argument. Cores are given Now; only hosts read a clock.
#pragma once

#include <chrono>
#include <cstdint>

namespace skerry {

using Duration = std::chrono::nanoseconds;

struct Now {
  Duration
      // CLOCK_BOOTTIME: what leases and timeouts count by; goes on while the
      // machine sleeps
      boot{};
  std::int64_t unix_ms = 0;  // wall clock: what certificates, tokens and events carry; may jump
};

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Now now() const = 0;
};

class SystemClock final : public Clock {
 public:
  Now now() const override;
};

}  // namespace skerry
