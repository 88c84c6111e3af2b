// SPDX-License-Identifier: Apache-2.0
// Cleans foreign text for a string field of a message: protobuf neither writes
// nor reads invalid UTF-8.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace skerry {

// RETURNS: valid UTF-8 of at most `limit_bytes`. Replaces each invalid byte by
// '?', and cuts between characters.
std::string clean_text(std::string_view text, std::size_t limit_bytes);

}  // namespace skerry
