// SPDX-License-Identifier: Apache-2.0
// SHA-256 checksums of files, in the format of sha256sum.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace skerry::cli {

Result<std::string> sha256_of_file(const std::string& path);  // 64 lower-case hex digits

// Writes FOLDER/SHA256SUMS over all other regular files below it. `sha256sum
// -c` in FOLDER verifies them.
Result<void> write_sha256sums(const std::string& folder);

}  // namespace skerry::cli
