// SPDX-License-Identifier: Apache-2.0
// Time as an argument. Cores receive Now; only hosts read a clock.
#pragma once

#include <chrono>
#include <cstdint>

namespace skerry {

using Duration = std::chrono::nanoseconds;

struct Now {
  // CLOCK_BOOTTIME, for leases and timeouts; it goes on while the machine
  // sleeps
  Duration boot{};
  std::int64_t unix_ms = 0;  // wall clock, for certificates, tokens and events; may jump
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
