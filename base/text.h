// Small text helpers: messages from parts, hexadecimal, sizes and durations for people.
#pragma once

#include <chrono>
#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>

#include "base/result.h"

namespace skerry {

// text("expert ", 3, " lost") == "expert 3 lost".
template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return std::move(out).str();
}

// Lower-case hexadecimal of any bytes, and back. from_hex fails on odd length or a character outside [0-9a-f].
std::string to_hex(std::string_view bytes);
Result<std::string> from_hex(std::string_view hex);

// "3.4 MiB", "17 B".
std::string human_bytes(std::uint64_t bytes);
// "850 ms", "4.2 s", "3 m 20 s", "2 h 5 m".
std::string human_duration(std::chrono::nanoseconds duration);
// RFC 3339 in UTC with milliseconds: "2026-01-31T12:00:00.000Z".
std::string utc_time(std::int64_t unix_ms);

}  // namespace skerry
