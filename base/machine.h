// SPDX-License-Identifier: Apache-2.0
// What this machine is to others that ask whether two processes would die
// together.
#pragma once

#include <string>

namespace skerry {

// The same for all processes under one kernel, containers among them, and for
// no others; another after a restart of the machine. Empty where it cannot be
// read.
std::string machine_label();

}  // namespace skerry
