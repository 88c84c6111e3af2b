// SPDX-License-Identifier: Apache-2.0
// The label of this machine, from which others tell whether two processes would
// die together.
#pragma once

#include <string>

namespace skerry {

// RETURNS: the same label for all processes under one kernel, containers
// included, and for no others. It changes when the machine restarts. Empty if
// it cannot be read.
std::string machine_label();

}  // namespace skerry
