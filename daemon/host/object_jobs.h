// SPDX-License-Identifier: Apache-2.0
// What the disk worker does with objects: each function blocks, and may run on
// any thread.
#pragma once

#include <memory>
#include <optional>

#include "base/result.h"
#include "daemon/core/effects.h"
#include "daemon/core/event.h"
#include "daemon/host/engines.h"
#include "storage/object_store.h"

namespace skerry::daemon {

// The snapshot becomes a checkpoint, whole and durable on return. kExhausted:
// the disk is full, nothing was changed.
Result<pb::ObjectRef> store_snapshot(storage::ObjectStore& objects, const StoreSnapshot& order,
                                     const Snapshot& snapshot);

// Nothing of a file.
std::optional<CheckpointFacts> checkpoint_facts(const storage::ObjectInfo& object);

// A checkpoint as the safetensors file that an engine resumes from, to be read
// only. Every chunk was checked.
struct ResumeFile {
  std::unique_ptr<storage::File> file;
  std::uint64_t bytes = 0;
};
Result<ResumeFile> open_resume(const storage::ObjectStore& objects, const Hash& checkpoint);

// Whether the object is here whole; with `verify`, every chunk was hashed
// again. What is not whole any more goes on being received from what is left of
// it.
Result<bool> is_whole(storage::ObjectStore& objects, const Hash& object, bool verify);

}  // namespace skerry::daemon
