// SPDX-License-Identifier: Apache-2.0
// Loaded with LD_PRELOAD: the wall clock is SKERRY_FAKE_CLOCK_AT seconds ahead
// of the machine's, or behind it.
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>

extern "C" int clock_gettime(clockid_t id, timespec* time) noexcept {
  if (::syscall(SYS_clock_gettime, id, time) != 0) return -1;
  const char* const at = std::getenv("SKERRY_FAKE_CLOCK_AT");
  if (id == CLOCK_REALTIME && at != nullptr) time->tv_sec += std::atol(at);
  return 0;
}
