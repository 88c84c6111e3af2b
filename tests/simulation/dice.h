// SPDX-License-Identifier: Apache-2.0
// Chance in a simulation, from one 64-bit seed. Each use has an independent
// stream: a draw for one purpose changes no other.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/random.h"

namespace skerry::simulation {

class Dice {
 public:
  // The same (seed, use, number) gives the same stream on every machine.
  Dice(std::uint64_t seed, std::string_view use, std::uint32_t number = 0)
      : stream_(Position{.seed = seed,
                         .step = mix(use),
                         .sample = number,
                         .purpose = skerry::Purpose::kSimulation}) {}

  std::uint64_t u64() { return stream_.u64(); }
  double uniform() { return stream_.uniform(); }
  bool chance(double probability) { return probability > 0 && stream_.uniform() < probability; }
  // From `low` to `high`, both included.
  std::uint64_t between(std::uint64_t low, std::uint64_t high) {
    return low + stream_.below(high - low + 1);
  }
  double real(double low, double high) { return low + (high - low) * stream_.uniform(); }
  Duration duration(Duration low, Duration high) {
    return Duration(static_cast<std::int64_t>(
        between(static_cast<std::uint64_t>(low.count()),
                static_cast<std::uint64_t>(std::max(low, high).count()))));
  }
  template <class T>
  const T& pick(const std::vector<T>& items) {
    return items[stream_.below(items.size())];
  }

 private:
  static std::uint64_t mix(std::string_view use) {
    std::uint64_t value = 0xcbf29ce484222325;
    for (const char c : use) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    return value;
  }
  Stream stream_;
};

}  // namespace skerry::simulation
