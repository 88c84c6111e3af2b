// SPDX-License-Identifier: Apache-2.0
// SHA-256 of files, for SHA256SUMS: the sum that every machine has a program
// for.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace skerry::cli {

Result<std::string> sha256_of_file(const std::string& path);  // 64 lower-case hex digits

// Writes FOLDER/SHA256SUMS over every other regular file below, so that
// `sha256sum -c` in FOLDER accepts it.
Result<void> write_sha256sums(const std::string& folder);

}  // namespace skerry::cli
