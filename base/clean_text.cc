// SPDX-License-Identifier: Apache-2.0
#include "base/clean_text.h"

#include <algorithm>

namespace skerry {
namespace {

// Bytes of the character that begins here, 0 where none does (RFC 3629).
std::size_t character_bytes(std::string_view rest) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(rest[i]); };
  const auto tail = [&](std::size_t i) { return i < rest.size() && (byte(i) & 0xC0) == 0x80; };
  if (byte(0) < 0x80) return 1;
  if (byte(0) >= 0xC2 && byte(0) <= 0xDF) return tail(1) ? 2 : 0;
  if (byte(0) >= 0xE0 && byte(0) <= 0xEF && tail(1) && tail(2)) {
    const bool overlong = byte(0) == 0xE0 && byte(1) < 0xA0;
    const bool surrogate = byte(0) == 0xED && byte(1) >= 0xA0;
    return overlong || surrogate ? 0 : 3;
  }
  if (byte(0) >= 0xF0 && byte(0) <= 0xF4 && tail(1) && tail(2) && tail(3)) {
    const bool overlong = byte(0) == 0xF0 && byte(1) < 0x90;
    const bool beyond = byte(0) == 0xF4 && byte(1) >= 0x90;
    return overlong || beyond ? 0 : 4;
  }
  return 0;
}

}  // namespace

std::string clean_text(std::string_view text, std::size_t limit_bytes) {
  std::string clean;
  while (!text.empty()) {
    const std::size_t size = character_bytes(text);
    if (clean.size() + std::max<std::size_t>(size, 1) > limit_bytes) break;
    if (size == 0) {
      clean += '?';
    } else {
      clean += text.substr(0, size);
    }
    text.remove_prefix(std::max<std::size_t>(size, 1));
  }
  return clean;
}

}  // namespace skerry
