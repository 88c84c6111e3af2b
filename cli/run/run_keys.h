// SPDX-License-Identifier: Apache-2.0
// The keys of a run file as a table: the parser, the example and the
// suggestions all read it.
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

// What a key expects and where its value goes.
struct RunKey {
  std::string_view section;  // "": the top
  std::string_view name;
  Kind kind;
  std::string_view expected;  // "a whole number from 1 to 65536"
  double least = 0;           // of whole numbers and numbers
  double most = 0;
  std::string_view standard;  // default, as it is written in a file; empty: none
  std::string_view example;   // for a new file, where that is not the default
  std::string_view meaning;
  Result<void> (*set)(pb::RunSpec&, const Value&);  // may refuse with its own words
};

std::span<const RunKey> run_keys();
const RunKey* find_run_key(std::string_view section, std::string_view name);
bool is_run_section(std::string_view name);

// The known word that is nearest to `found`, where it is near enough to be
// meant; else empty.
std::string_view nearest_word(std::string_view found, std::span<const std::string_view> words);

}  // namespace skerry::cli
