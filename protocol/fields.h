// SPDX-License-Identifier: Apache-2.0
// Checks of single fields, shared by the validators. Each error message names
// the field.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/text.h"

namespace skerry::protocol::fields {

inline Error bad(std::string_view field, std::string_view expected, std::string_view found) {
  return fail(ErrorCode::kInvalid, text(field, ": expected ", expected, ", found ", found));
}

template <class T>
Result<void> in_range(std::string_view field, T value, T low, T high) {
  if (value >= low && value <= high) return {};
  return bad(field, text("a number from ", low, " to ", high), text(value));
}

inline Result<void> finite(std::string_view field, double value) {
  if (std::isfinite(value)) return {};
  return bad(field, "a finite number", text(value));
}

// NaN fails: it is in no range.
inline Result<void> not_negative(std::string_view field, double value) {
  if (std::isfinite(value) && value >= 0) return {};
  return bad(field, "a finite number, 0 or more", text(value));
}

inline Result<void> text_at_most(std::string_view field, std::string_view value,
                                 std::size_t limit) {
  if (value.size() <= limit) return {};
  return bad(field, text("at most ", limit, " bytes"), text(value.size(), " bytes"));
}

inline Result<void> count_at_most(std::string_view field, int count, std::size_t limit) {
  if (static_cast<std::size_t>(count) <= limit) return {};
  return bad(field, text("at most ", limit, " entries"), text(count));
}

inline Result<void> length(std::string_view field, std::string_view value, std::size_t wanted) {
  if (value.size() == wanted) return {};
  return bad(field, text(wanted, " bytes"), text(value.size(), " bytes"));
}

inline Result<void> length_or_empty(std::string_view field, std::string_view value,
                                    std::size_t wanted) {
  if (value.empty()) return {};
  return length(field, value, wanted);
}

}  // namespace skerry::protocol::fields
