// SPDX-License-Identifier: Apache-2.0
// The router of a run, and a list of the nodes that hold the best checkpoint of
// each expert. `skerryd router` makes both from one node's disk, without a
// network: from its table of records and its objects.
//
// THREADS: any; blocks. It only reads: a daemon may run on the same disk.
#pragma once

#include <string>

#include "base/clock.h"
#include "gossip/table.h"
#include "storage/object_store.h"
#include "storage/store.h"

namespace skerry::daemon {

// What the disk remembers of the fleet, every signature checked again. A
// running daemon saves it each half minute.
Result<gossip::Table> saved_records(const storage::Store& store, const std::string& coordinator_key,
                                    Now now);

struct RouterFolder {
  std::string index;  // what experts.json says
  std::string words;  // the same for people
};

// Makes `folder`: router.safetensors and partition-<k>.safetensors as an
// ensemble's router/ has them, and experts.json. `run`: a name or an id.
// ON FAILURE: there is no folder.
// - kNotFound: no record names the run; the message lists the known runs.
// - kUnavailable: a part is not on this disk; the message names its holders.
// - kConflict: `folder` exists.
// - kCorrupt: a part is damaged on the disk.
Result<RouterFolder> write_router_folder(const gossip::Table& table,
                                         const storage::ObjectStore& objects,
                                         const std::string& run, std::string folder, Now now);

}  // namespace skerry::daemon
