// SPDX-License-Identifier: Apache-2.0
#define TOML_IMPLEMENTATION
#include "base/toml.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/text.h"

namespace skerry {
namespace {

// toml++ repeats what it read, which may be anything.
std::string plain(std::string_view words) {
  std::string out(words);
  std::replace_if(
      out.begin(), out.end(), [](unsigned char c) { return c < 0x20 || c >= 0x7f; }, '?');
  return out;
}

}  // namespace

Result<toml::table> parse_toml(std::string_view content, std::string_view shown_as) try {
  toml::parse_result parsed = toml::parse(content);
  if (parsed) return std::move(parsed).table();
  const auto& where = parsed.error().source().begin;
  return fail(ErrorCode::kInvalid, text(shown_as, ':', where.line, ':', where.column,
                                        ": not TOML: ", plain(parsed.error().description())));
} catch (const TomlGaveUp&) {
  return fail(ErrorCode::kInvalid,
              text(shown_as, ":1:1: not TOML: a bracket, key or value is broken"));
}

Result<toml::table> read_toml(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    return fail(ErrorCode::kInvalid, text(path, " is no file: expected one of TOML"));
  std::ifstream file(path, std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(file), {}};
  if (!file) return fail(ErrorCode::kNotFound, text("cannot read ", path, ": is the path right?"));
  return parse_toml(content, path);
}

}  // namespace skerry
