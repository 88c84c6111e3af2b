// SPDX-License-Identifier: Apache-2.0
// Where a command finds its coordinator: --context FILE, else SKERRY_CONTEXT,
// else what `skerry login` wrote, else the machine's /etc/skerry/context.toml.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/shell/surroundings.h"

namespace skerry::cli {

// $XDG_CONFIG_HOME/skerry/context.toml, by default under ~/.config; empty where
// there is no home.
std::string personal_context_path(const Surroundings& around);

// A flag or variable names its file whether it is there or not; the others
// count where they exist. kNotFound where there is none, with what to do.
Result<std::string> find_context(const std::string& flag, const Surroundings& around,
                                 const std::string& machine_path = "/etc/skerry/context.toml");

}  // namespace skerry::cli
