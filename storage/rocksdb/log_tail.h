// SPDX-License-Identifier: Apache-2.0
// A crash in the middle of a write can leave the last record of RocksDB's log
// cut short; a power loss can leave zeros inside it. It was never acknowledged,
// since a synced record is whole. The recovery mode that cuts nothing silently
// refuses to open such a log. This tells the two apart, and cuts only what was
// never acknowledged.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace skerry::storage {

// Where the last, unfinished record begins; nothing where the log is whole, or
// damaged in any other way: then nobody knows what is lost.
std::optional<std::uint64_t> torn_tail(std::string_view log);

// Cuts the torn tail of the newest log in the database's folder. True if there
// was one.
Result<bool> cut_torn_tail(const std::string& database);

}  // namespace skerry::storage
