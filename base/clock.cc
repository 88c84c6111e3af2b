// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include <ctime>

namespace skerry {

Now SystemClock::now() const {
  timespec boot{};
  clock_gettime(CLOCK_BOOTTIME, &boot);
  const auto wall = std::chrono::system_clock::now().time_since_epoch();
  return {std::chrono::seconds(boot.tv_sec) + std::chrono::nanoseconds(boot.tv_nsec),
          std::chrono::duration_cast<std::chrono::milliseconds>(wall).count()};
}

}  // namespace skerry
