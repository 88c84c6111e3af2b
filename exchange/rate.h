// SPDX-License-Identifier: Apache-2.0
// What people write for a limit in bytes a second.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace skerry::exchange {

// Below it a chunk would not come before its receiver stops waiting for it
// (Config::request_timeout).
inline constexpr std::uint64_t kLeastRate = 200'000;

// "16MB/s", "16 MB/s", "16MB", "100Mbit/s", "500KiB/s", or bytes a second as a
// number; "off" or 0 for none, which is 0. kInvalid with what is understood;
// also for a limit below kLeastRate.
Result<std::uint64_t> parse_rate(std::string_view words);

}  // namespace skerry::exchange
