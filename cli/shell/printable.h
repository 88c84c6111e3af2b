// SPDX-License-Identifier: Apache-2.0 Makes untrusted bytes safe for a terminal
// and for JSON: replaces invalid UTF-8 and control characters by '?'.
#pragma once

#include <string>
#include <string_view>

namespace skerry::cli {

std::string printable(std::string_view bytes);

}  // namespace skerry::cli
