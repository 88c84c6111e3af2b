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

// The file of `flag` or of the variable, whether it exists or not; else the
// first of the usual files that exists.
// ON FAILURE: kNotFound: none exists; the message says what to do.
Result<std::string> find_context(const std::string& flag, const Surroundings& around,
                                 const std::string& machine_path = "/etc/skerry/context.toml");

}  // namespace skerry::cli
