// SPDX-License-Identifier: Apache-2.0
#include "cli/connect/context.h"

#include <filesystem>

#include "base/text.h"

namespace skerry::cli {
namespace {

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

}  // namespace

std::string personal_context_path(const Surroundings& around) {
  const std::string config = around.environment("XDG_CONFIG_HOME").value_or("");
  if (!config.empty()) return config + "/skerry/context.toml";
  const std::string home = around.environment("HOME").value_or("");
  return home.empty() ? "" : home + "/.config/skerry/context.toml";
}

Result<std::string> find_context(const std::string& flag, const Surroundings& around,
                                 const std::string& machine_path) {
  if (!flag.empty()) return flag;
  const std::string variable = around.environment("SKERRY_CONTEXT").value_or("");
  if (!variable.empty()) return variable;
  for (const std::string& path : {personal_context_path(around), machine_path}) {
    if (!path.empty() && exists(path)) return path;
  }
  return fail(ErrorCode::kNotFound,
              text("no coordinator is known here: use --context FILE or SKERRY_CONTEXT (the "
                   "coordinator writes "
                   "admin.toml into its data folder), or `skerry login TOKEN`"));
}

}  // namespace skerry::cli
