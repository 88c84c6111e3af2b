// SPDX-License-Identifier: Apache-2.0
// Text that others wrote, made fit for a string field of a message: protobuf
// neither writes nor reads another.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace skerry {

// RETURNS: valid UTF-8 of at most `limit_bytes`. A byte that is none becomes
// '?'; the cut is between characters.
std::string clean_text(std::string_view text, std::size_t limit_bytes);

}  // namespace skerry
