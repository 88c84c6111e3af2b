// SPDX-License-Identifier: Apache-2.0
// Small files that hold a key: read and written whole, readable by their owner
// only.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"

namespace skerry::protocol {

// kNotFound where there is none. Warns in the log where others can read it.
// Refuses files over 64 KiB.
Result<std::string> read_secret_file(const std::filesystem::path& path);
// Atomically, mode 0600, synced with its folder: afterwards the file holds all
// of `content` or what it held before.
Result<void> write_secret_file(const std::filesystem::path& path, std::string_view content);

}  // namespace skerry::protocol
