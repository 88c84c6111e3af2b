// SPDX-License-Identifier: Apache-2.0
// Whether a port answers at all: a TCP connection, closed again at once. Needs
// no key.
#pragma once

#include <chrono>
#include <string>

#include "base/result.h"

namespace skerry::cli {

// How long a connection to tcp://HOST:PORT took. kNotFound: the name has no
// address; kTimeout, kUnavailable.
Result<std::chrono::nanoseconds> reach(const std::string& url, std::chrono::milliseconds within);

}  // namespace skerry::cli
