// SPDX-License-Identifier: Apache-2.0
// Cuts an unfinished record from the end of RocksDB's log, and nothing else. A
// crash during a write can cut the last record short; a power loss can leave
// zeros inside it. The store never acknowledged such a record, since a synced
// one is whole. RocksDB's recovery mode that cuts nothing silently refuses to
// open such a log. This code distinguishes it from other damage.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace skerry::storage {

// RETURNS: where the last, unfinished record begins; nothing if the log is
// whole. Nothing either for other damage, since no one knows then what is lost.
std::optional<std::uint64_t> torn_tail(std::string_view log);

// Cuts the torn tail of the newest log in the database's folder.
// RETURNS: whether there was one.
Result<bool> cut_torn_tail(const std::string& database);

}  // namespace skerry::storage
