// SPDX-License-Identifier: Apache-2.0
// Small text helpers: messages from parts, hexadecimal, sizes and durations for
// people.
#pragma once

#include <charconv>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/result.h"

namespace skerry {

// Appends the part as a stream would print it. Streams are slow for short
// texts, so words, numbers and identifiers bypass them.
template <class Part>
void append_text(std::string& out, const Part& part) {
  if constexpr (std::is_convertible_v<const Part&, std::string_view>) {
    out += std::string_view(part);
  } else if constexpr (std::is_same_v<Part, char>) {
    out += part;
  } else if constexpr (std::is_integral_v<Part> && sizeof(Part) > 1) {
    char digits[24];
    const char* const end = std::to_chars(digits, digits + sizeof digits, part).ptr;
    out += std::string_view(digits, static_cast<std::size_t>(end - digits));
  } else if constexpr (requires {
                         { part.str() } -> std::same_as<const std::string&>;
                       }) {
    out += part.str();
  } else {
    std::ostringstream stream;
    stream << part;
    out += std::move(stream).str();
  }
}

// text("expert ", 3, " lost") == "expert 3 lost".
template <class... Parts>
std::string text(const Parts&... parts) {
  std::string out;
  (append_text(out, parts), ...);
  return out;
}

// Lower-case hexadecimal of any bytes, and back. from_hex fails on odd length
// or a character outside [0-9a-f].
std::string to_hex(std::string_view bytes);
Result<std::string> from_hex(std::string_view hex);

// "3.4 MiB", "17 B".
std::string human_bytes(std::uint64_t bytes);
// "850 ms", "4.2 s", "3 m 20 s", "2 h 5 m".
std::string human_duration(std::chrono::nanoseconds duration);
// RFC 3339 in UTC with milliseconds: "2026-01-31T12:00:00.000Z".
std::string utc_time(std::int64_t unix_ms);

}  // namespace skerry
