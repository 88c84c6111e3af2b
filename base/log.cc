// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace skerry {
namespace {

spdlog::level::level_enum level_of(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

spdlog::logger& logger() {
  static const auto instance = [] {
    auto made = spdlog::stderr_color_mt("skerry");
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%l%$ %v");
    made->flush_on(spdlog::level::info);
    return made;
  }();
  return *instance;
}

}  // namespace

void init_log(std::string_view program, LogLevel lowest) {
  logger().set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%l%$ " + std::string(program) + " %v");
  logger().set_level(level_of(lowest));
}

Result<LogLevel> parse_log_level(std::string_view name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "info") return LogLevel::kInfo;
  if (name == "warning") return LogLevel::kWarning;
  if (name == "error") return LogLevel::kError;
  return fail(ErrorCode::kInvalid,
              text("log level must be debug, info, warning or error; found '", name, "'"));
}

void log_line(LogLevel level, std::string_view message, std::initializer_list<LogField> fields) {
  std::string line(message);
  for (const LogField& field : fields) {
    const bool quote =
        field.value.empty() || field.value.find_first_of(" \"=\n") != std::string::npos;
    line += ' ';
    line += field.key;
    line += '=';
    if (!quote) {
      line += field.value;
      continue;
    }
    line += '"';
    for (const char c : field.value) {
      if (c == '\n') {
        line += "\\n";
        continue;
      }
      if (c == '"' || c == '\\') line += '\\';
      line += c;
    }
    line += '"';
  }
  logger().log(level_of(level), spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace skerry
