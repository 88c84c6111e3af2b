// SPDX-License-Identifier: Apache-2.0
#include "cli/shell/printable.h"

#include <algorithm>

namespace skerry::cli {
namespace {

// Length of the valid UTF-8 sequence at the front, 0 if there is none.
std::size_t sequence_length(std::string_view bytes) {
  const auto first = static_cast<unsigned char>(bytes.front());
  const std::size_t length = first < 0x80                    ? 1
                             : first >= 0xc2 && first < 0xe0 ? 2
                             : first >= 0xe0 && first < 0xf0 ? 3
                             : first >= 0xf0 && first < 0xf5 ? 4
                                                             : 0;
  if (length == 0 || length > bytes.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((static_cast<unsigned char>(bytes[i]) & 0xc0) != 0x80) return 0;
  }
  const auto second = length > 1 ? static_cast<unsigned char>(bytes[1]) : 0;
  const bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool outside = (first == 0xed && second >= 0xa0) || (first == 0xf4 && second >= 0x90);
  return overlong || outside ? 0 : length;
}

}  // namespace

std::string printable(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    const std::size_t length = sequence_length(bytes);
    const auto first = static_cast<unsigned char>(bytes.front());
    const bool control = length == 1 && (first < 0x20 || first == 0x7f);
    const bool control_c1 =
        length == 2 && first == 0xc2 && static_cast<unsigned char>(bytes[1]) < 0xa0;
    if (length == 0 || control || control_c1) {
      out += '?';
    } else {
      out += bytes.substr(0, length);
    }
    bytes.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return out;
}

}  // namespace skerry::cli
