// SPDX-License-Identifier: Apache-2.0
// Checks every chunk on a node's disk for `skerryd verify`, and names damaged
// objects to the daemon. It only reads the disk; a daemon may run beside it.
// The daemon, now or when it starts, checks the named objects again, and
// fetches anew what it needs of them.
//
// THREADS: any; blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "storage/object_store.h"

namespace skerry::daemon {

struct DamagedObject {
  storage::ObjectInfo info;
  std::vector<Hash> chunks;  // that are not what their names say; none: its manifest cannot be read
};

struct DiskVerdict {
  std::size_t objects =
      0;  // whole ones: what is being received is hashed anyway when its transfer goes on
  std::uint64_t bytes = 0;
  std::vector<DamagedObject> damaged;
};

// Reads and hashes each chunk of each whole object.
DiskVerdict verify_disk(
    const storage::ObjectStore& objects,
    const std::function<void(std::uint64_t done_bytes, std::uint64_t total_bytes)>& shown);

std::string verdict_json(const DiskVerdict& verdict);
std::string verdict_words(const DiskVerdict& verdict);

// The file `path` names objects to the daemon, in the place of what it named
// before.
Result<void> write_distrusted(const std::string& path, const std::vector<DamagedObject>& damaged);
// What it names; the file is gone afterwards. Empty where there is none.
std::vector<Hash> take_distrusted(const std::string& path);

}  // namespace skerry::daemon
