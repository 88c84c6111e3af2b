// SPDX-License-Identifier: Apache-2.0
// Small files that hold a key: read and written whole, readable only by their
// owner.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"

namespace skerry::protocol {

// Logs a warning if others can read the file. Refuses files over 64 KiB.
// ON FAILURE: kNotFound if there is no file.
Result<std::string> read_secret_file(const std::filesystem::path& path);
// Writes the file atomically with mode 0600, synced with its folder. After a
// failure it holds all of `content` or its old content.
Result<void> write_secret_file(const std::filesystem::path& path, std::string_view content);

}  // namespace skerry::protocol
