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

// Reads "16MB/s", "16 MB/s", "16MB", "100Mbit/s", "500KiB/s", or a number of
// bytes a second. "off" and "0" are no limit.
// RETURNS: bytes a second; 0: no limit.
// ON FAILURE: kInvalid, also for a limit below kLeastRate; the message says
// what is understood.
Result<std::uint64_t> parse_rate(std::string_view words);

}  // namespace skerry::exchange
