// SPDX-License-Identifier: Apache-2.0
#include "exchange/rate.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>

#include "base/text.h"

namespace skerry::exchange {
namespace {

struct Unit {
  std::string_view name;
  double bytes;
};
constexpr std::array<Unit, 13> kUnits = {{{"", 1},
                                          {"B", 1},
                                          {"kB", 1e3},
                                          {"KB", 1e3},
                                          {"MB", 1e6},
                                          {"GB", 1e9},
                                          {"KiB", 1024},
                                          {"MiB", 1024.0 * 1024},
                                          {"GiB", 1024.0 * 1024 * 1024},
                                          {"kbit", 125},
                                          {"Kbit", 125},
                                          {"Mbit", 125e3},
                                          {"Gbit", 125e6}}};
constexpr double kMost = 1e15;

}  // namespace

Result<std::uint64_t> parse_rate(std::string_view words) {
  if (words == "off") return 0;
  const auto refuse = [&] {
    return fail(ErrorCode::kInvalid,
                text("expected a rate as 16MB/s, 500KiB/s or 100Mbit/s, or off; found \"",
                     words.substr(0, 40), '"'));
  };
  const std::size_t digits = std::min(words.find_first_not_of("0123456789."), words.size());
  const std::string number(words.substr(0, digits));
  std::string_view unit = words.substr(digits);
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  if (unit.ends_with("/s")) unit.remove_suffix(2);
  char* end = nullptr;
  const double value = std::strtod(number.c_str(), &end);
  if (number.empty() || *end != '\0') return refuse();
  for (const Unit& each : kUnits) {
    if (each.name != unit) continue;
    const double rate = value * each.bytes;
    if (rate == 0) return 0;
    if (rate > kMost) return refuse();
    if (rate < static_cast<double>(kLeastRate)) {
      return fail(ErrorCode::kInvalid,
                  text("a limit of ", words, " is too low: at least ", kLeastRate / 1000,
                       "kB/s are needed, so that a chunk of 4 MiB comes in time; off is no limit"));
    }
    return static_cast<std::uint64_t>(rate);
  }
  return refuse();
}

}  // namespace skerry::exchange
