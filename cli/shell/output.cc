// SPDX-License-Identifier: Apache-2.0
#include "cli/shell/output.h"

#include <algorithm>
#include <cstdio>
#include <ostream>

#include "base/text.h"

namespace skerry::cli {
namespace {

// Characters that a terminal shows, counted as UTF-8 code points.
std::size_t width_of(std::string_view words) {
  return static_cast<std::size_t>(
      std::count_if(words.begin(), words.end(), [](char byte) { return (byte & 0xc0) != 0x80; }));
}

const char* colour_code(Paint paint) {
  switch (paint) {
    case Paint::kGood:
      return "\033[32m";
    case Paint::kWarning:
      return "\033[33m";
    case Paint::kBad:
      return "\033[31m";
    case Paint::kFaint:
      return "\033[2m";
    case Paint::kPlain:
      break;
  }
  return "";
}

}  // namespace

Result<Format> parse_format(const std::string& name) {
  if (name == "table") return Format::kTable;
  if (name == "json") return Format::kJson;
  return fail(ErrorCode::kInvalid, text("-o expects table or json, found '", printable(name), "'"));
}

std::string painted(std::string_view words, Paint paint, bool colour) {
  if (!colour || paint == Paint::kPlain) return std::string(words);
  return text(colour_code(paint), words, "\033[0m");
}

void Table::print(std::ostream& out, bool colour) const {
  std::vector<std::size_t> widths;
  for (const std::string& heading : headings_) widths.push_back(width_of(heading));
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size() && i < widths.size(); ++i) {
      widths[i] = std::max(widths[i], width_of(printable(row[i].words)));
    }
  }
  const auto line = [&](const std::vector<Cell>& row) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string words = printable(row[i].words);
      out << painted(words, row[i].paint, colour);
      if (i + 1 < row.size()) out << std::string(widths[i] - width_of(words) + 2, ' ');
    }
    out << '\n';
  };
  std::vector<Cell> head;
  for (const std::string& heading : headings_) head.emplace_back(heading, Paint::kFaint);
  line(head);
  for (const auto& row : rows_) line(row);
}

bool colour_wanted(const Surroundings& around) {
  return around.out_is_terminal() && around.environment("NO_COLOR").value_or("").empty() &&
         around.environment("TERM").value_or("") != "dumb";
}

Json versioned(Json object) {
  Json out = {{"api_version", kApiVersion}};
  for (auto& [key, value] : object.items()) out[key] = std::move(value);
  return out;
}

void print_object(std::ostream& out, Json object) {
  out << versioned(std::move(object)).dump(2) << '\n';
}

void print_items(std::ostream& out, Json items) {
  if (items.is_null()) items = Json::array();
  print_object(out, {{"items", std::move(items)}});
}

void print_line(std::ostream& out, Json object) {
  out << versioned(std::move(object)).dump() << std::endl;
}

Json text_or_null(const std::string& value) {
  return value.empty() ? Json() : Json(printable(value));
}
Json time_or_null(std::int64_t unix_ms) { return unix_ms == 0 ? Json() : Json(utc_time(unix_ms)); }
Json hex_or_null(std::string_view bytes) { return bytes.empty() ? Json() : Json(to_hex(bytes)); }
std::string or_dash(const std::string& value) { return value.empty() ? "-" : value; }

std::string ago(std::int64_t unix_ms, std::int64_t now_unix_ms) {
  if (unix_ms == 0) return "-";
  if (unix_ms + 1000 > now_unix_ms) return "now";
  return human_duration(std::chrono::seconds((now_unix_ms - unix_ms) / 1000)) + " ago";
}

std::string fixed(double value, int digits) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.*f", digits, value);
  return buffer;
}

Paint paint_of_state(std::string_view state) {
  for (const auto good : {"running", "ready", "training", "done", "committing", "ok"}) {
    if (state == good) return Paint::kGood;
  }
  for (const auto bad : {"failed", "lost", "revoked", "damaged"}) {
    if (state == bad) return Paint::kBad;
  }
  for (const auto warning : {"paused", "stopped", "draining", "cordoned", "uploading", "warning"}) {
    if (state == warning) return Paint::kWarning;
  }
  return Paint::kPlain;
}

}  // namespace skerry::cli
