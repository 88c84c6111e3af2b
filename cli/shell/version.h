// SPDX-License-Identifier: Apache-2.0
// The name and version of this program, for Hello and for people.
#pragma once

#include <string>

namespace skerry::cli {

inline std::string own_version() { return SKERRY_VERSION; }
inline std::string own_software() { return "skerry " + own_version(); }

}  // namespace skerry::cli
