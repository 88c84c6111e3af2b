// SPDX-License-Identifier: Apache-2.0
// CHECK(condition, parts…): an invariant of our own, on in every build. A
// failure prints and aborts. The process restarts into recovery instead of
// continuing in an unknown state.
#pragma once

#include <string>

#include "base/text.h"

namespace skerry {
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& message);
}

#define SKERRY_CHECK(condition, ...)                                                       \
  do {                                                                                     \
    if (!(condition)) {                                                                    \
      ::skerry::check_failed(__FILE__, __LINE__, #condition, ::skerry::text(__VA_ARGS__)); \
    }                                                                                      \
  } while (false)
