// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <array>
#include <cstdio>
#include <ctime>

namespace skerry {

std::string to_hex(std::string_view bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    out.push_back(kDigits[byte >> 4]);
    out.push_back(kDigits[byte & 15]);
  }
  return out;
}

Result<std::string> from_hex(std::string_view hex) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  if (hex.size() % 2 != 0)
    return fail(ErrorCode::kInvalid, "hexadecimal text must have an even number of digits");
  std::string out;
  out.reserve(hex.size() / 2);
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    const int high = digit(hex[i]);
    const int low = digit(hex[i + 1]);
    if (high < 0 || low < 0)
      return fail(ErrorCode::kInvalid, "expected only the digits 0-9 and a-f");
    out.push_back(static_cast<char>(high << 4 | low));
  }
  return out;
}

std::string human_bytes(std::uint64_t bytes) {
  static constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  std::array<char, 32> out{};
  std::snprintf(out.data(), out.size(), unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return out.data();
}

std::string human_duration(std::chrono::nanoseconds duration) {
  const double seconds = std::chrono::duration<double>(duration).count();
  std::array<char, 48> out{};
  if (seconds < 1) {
    std::snprintf(out.data(), out.size(), "%.0f ms", seconds * 1000);
  } else if (seconds < 60) {
    std::snprintf(out.data(), out.size(), "%.1f s", seconds);
  } else if (seconds < 3600) {
    const int whole = static_cast<int>(seconds);
    std::snprintf(out.data(), out.size(), "%d m %d s", whole / 60, whole % 60);
  } else {
    const int minutes = static_cast<int>(seconds / 60);
    std::snprintf(out.data(), out.size(), "%d h %d m", minutes / 60, minutes % 60);
  }
  return out.data();
}

std::string utc_time(std::int64_t unix_ms) {
  std::int64_t seconds = unix_ms / 1000;
  std::int64_t milliseconds = unix_ms % 1000;
  if (milliseconds < 0) {
    milliseconds += 1000;
    --seconds;
  }
  const std::time_t time = seconds;
  std::tm parts{};
  gmtime_r(&time, &parts);
  std::array<char, 40> date{};
  std::strftime(date.data(), date.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  std::array<char, 56> out{};
  std::snprintf(out.data(), out.size(), "%s.%03dZ", date.data(), static_cast<int>(milliseconds));
  return out.data();
}

}  // namespace skerry
