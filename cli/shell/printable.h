// SPDX-License-Identifier: Apache-2.0
// Bytes from others as text that a terminal and JSON can bear: invalid UTF-8
// and control characters become '?'.
#pragma once

#include <string>
#include <string_view>

namespace skerry::cli {

std::string printable(std::string_view bytes);

}  // namespace skerry::cli
