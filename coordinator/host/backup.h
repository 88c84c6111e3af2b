// SPDX-License-Identifier: Apache-2.0
// Copies a coordinator's state and objects from one store to another: a backup
// of a coordinator that may run, or a restore of a backup.
//
// ON FAILURE: the target holds no state. A coordinator that runs may have
// dropped or moved an object meanwhile: call it again with the same target.
// Each attempt copies only what the ones before did not, so it is shorter.
// THREADS: any; blocks on the disk.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "coordinator/core/core.h"
#include "storage/object_store.h"
#include "storage/store.h"

namespace skerry::coordinator {

// To a restore: the time of day where it takes place, and what becomes of join
// tokens.
struct Restore {
  std::int64_t unix_ms = 0;
  Core::Tokens tokens = Core::Tokens::kExpire;
  bool partial = false;  // of a bucket: also without all objects
};

struct CopiedData {
  std::vector<NamedObject> named;  // by the state
  std::set<Hash> lacking;          // of these, whose bytes could not all be read
};

struct CopyFrom {
  const storage::Store& store;
  const storage::ObjectStore& objects;  // a view() of the same store
};
struct CopyTo {
  storage::Store& store;
  storage::ObjectStore& objects;
};

// Copies the objects that the state names, and what else is whole, then the
// state. With `restore` the state goes on under a higher generation.
// `is_last_attempt`: what is gone counts as lacking.
// ON FAILURE: kInvalid: there is no state. kCorrupt: it cannot be read.
Result<CopiedData> copy_data(const CopyFrom& from, const CopyTo& to, const Authority& authority,
                             Now now, const std::optional<Restore>& restore, bool is_last_attempt);

}  // namespace skerry::coordinator
