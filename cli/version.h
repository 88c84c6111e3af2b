// How this program names itself, in Hello and to people.
#pragma once

#include <string>

namespace skerry::cli {

inline std::string own_software() { return std::string("skerry ") + SKERRY_VERSION; }

}  // namespace skerry::cli
