// SPDX-License-Identifier: Apache-2.0
// The log: one line per event on stderr, which journald reads, with fields that
// a person can grep. No header of the logging library is included here:
// LibTorch ships another version of it, and the two collide.
// THREADS: any.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/text.h"

namespace skerry {

struct LogField {
  template <class T>
  LogField(std::string_view field_key, const T& field_value)
      : key(field_key), value(text(field_value)) {}
  std::string_view key;
  std::string value;
};

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Names the program in each line and sets the lowest level shown. main calls it
// once; without it, the level is info.
void init_log(std::string_view program, LogLevel lowest = LogLevel::kInfo);
Result<LogLevel> parse_log_level(std::string_view name);  // debug, info, warning, error

void log_line(LogLevel level, std::string_view message,
              std::initializer_list<LogField> fields = {});

inline void log_debug(std::string_view m, std::initializer_list<LogField> f = {}) {
  log_line(LogLevel::kDebug, m, f);
}
inline void log_info(std::string_view m, std::initializer_list<LogField> f = {}) {
  log_line(LogLevel::kInfo, m, f);
}
inline void log_warning(std::string_view m, std::initializer_list<LogField> f = {}) {
  log_line(LogLevel::kWarning, m, f);
}
inline void log_error(std::string_view m, std::initializer_list<LogField> f = {}) {
  log_line(LogLevel::kError, m, f);
}

}  // namespace skerry
