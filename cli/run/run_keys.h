// SPDX-License-Identifier: Apache-2.0
// The table of a run file's keys, which the parser, the example and the
// suggestions share.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "base/result.h"
#include "protocol/skerry.pb.h"

namespace skerry::cli {

enum class Kind { kText, kWhole, kNumber, kSwitch };
using Value = std::variant<std::string, std::int64_t, double, bool>;

// A key, the values it accepts, and the field that its value sets.
struct RunKey {
  std::string_view section;  // "": the top level
  std::string_view name;
  Kind kind;
  std::string_view expected;  // "a whole number from 1 to 65536"
  double least = 0;           // of whole numbers and numbers
  double most = 0;
  std::string_view standard;  // default, as written in a file; empty: none
  std::string_view example;   // for a new file, if it differs from the default
  std::string_view meaning;
  Result<void> (*set)(pb::RunSpec&, const Value&);  // may refuse with its own message
};

std::span<const RunKey> run_keys();
const RunKey* find_run_key(std::string_view section, std::string_view name);
bool is_run_section(std::string_view name);

// RETURNS: the known word nearest to `found`, if it is near enough to be meant;
// else empty.
std::string_view nearest_word(std::string_view found, std::span<const std::string_view> words);

}  // namespace skerry::cli
