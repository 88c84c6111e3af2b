// SPDX-License-Identifier: Apache-2.0
// What the programs of tests/bench share.
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <type_traits>
#include <utility>

#include "base/result.h"

namespace skerry::bench {

// RETURNS: the value. ON FAILURE: prints why and ends the program.
template <class T>
T must(Result<T> result) {
  if (result) {
    if constexpr (std::is_void_v<T>)
      return;
    else
      return std::move(*result);
  }
  std::fprintf(stderr, "%s\n", result.error().message.c_str());
  std::exit(1);
}

// RETURNS: processor seconds of all threads of this process, which exclude the
// time of other programs.
inline double processor_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double seconds_of(const auto& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace skerry::bench
