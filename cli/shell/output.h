// SPDX-License-Identifier: Apache-2.0 Prints replies as tables for people or as
// JSON for scripts. Each JSON object has "api_version"; a list is
// {"api_version", "items": […]}. Colours appear only on a terminal and without
// NO_COLOR.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/shell/printable.h"
#include "cli/shell/surroundings.h"

namespace skerry::cli {

using Json = nlohmann::ordered_json;
inline constexpr std::string_view kApiVersion = "skerry/v1";

enum class Format { kTable, kJson };
Result<Format> parse_format(const std::string& name);

enum class Paint { kPlain, kGood, kWarning, kBad, kFaint };

struct Cell {
  Cell(std::string shown, Paint colour = Paint::kPlain)
      : words(std::move(shown)), paint(colour) {}  // NOLINT
  Cell(const char* shown) : words(shown) {}        // NOLINT
  std::string words;
  Paint paint = Paint::kPlain;
};

// A table whose columns are as wide as their widest cell, with two spaces
// between them. Control characters in cells appear as '?'.
class Table {
 public:
  explicit Table(std::vector<std::string> headings) : headings_(std::move(headings)) {}
  void add(std::vector<Cell> row) { rows_.push_back(std::move(row)); }
  bool empty() const { return rows_.empty(); }
  void print(std::ostream& out, bool colour) const;

 private:
  std::vector<std::string> headings_;
  std::vector<std::vector<Cell>> rows_;
};

bool colour_wanted(const Surroundings& around);
std::string painted(std::string_view words, Paint paint, bool colour);

// RETURNS: the object with "api_version" before its own fields.
Json versioned(Json object);
void print_object(std::ostream& out, Json object);
void print_items(std::ostream& out, Json items);
void print_line(std::ostream& out, Json object);  // on one line, for streams

Json text_or_null(const std::string& value);
Json time_or_null(std::int64_t unix_ms);  // RFC 3339; null at 0
Json hex_or_null(std::string_view bytes);
std::string or_dash(const std::string& value);
std::string ago(std::int64_t unix_ms, std::int64_t now_unix_ms);  // "3 s ago", "-" at 0
std::string fixed(double value, int digits);
Paint paint_of_state(std::string_view state);

}  // namespace skerry::cli
