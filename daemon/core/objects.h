// SPDX-License-Identifier: Apache-2.0
// The objects that slots need and the objects on the disk. Fetches missing
// objects, retries failed fetches, cancels unneeded ones, and drops unused
// objects. Part of the core.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/core/context.h"
#include "daemon/core/event.h"

namespace skerry::daemon {

inline constexpr Duration kFetchRetryFirst = milliseconds(500);
inline constexpr Duration kFetchRetryLast = seconds(10);

class Objects {
 public:
  Objects(const std::map<Hash, ObjectKind>& found,
          const std::map<Hash, CheckpointFacts>& checkpoints);

  // Level-triggered: in every step each slot names all objects that it needs to
  // start (need) and all that it only keeps (keep).
  void begin_step() { ++step_; }
  // RETURNS: whether it is stored. Fetches it otherwise.
  bool need(const pb::ObjectRef& object, ObjectKind kind, Context& context);
  void keep(const pb::ObjectRef& object);
  // Cancels and drops the objects that no slot named in this step. `may_drop`
  // is false until the coordinator has answered.
  void end_step(bool may_drop, Context& context);

  std::vector<Hash> checkpoints_on_disk() const;
  void stored(const Hash& manifest, const std::optional<CheckpointFacts>& facts);
  bool is_stored(const Hash& manifest) const;
  // This node stored a checkpoint of its own.
  void made(const pb::ObjectRef& object, const std::optional<CheckpointFacts>& facts);
  // RETURNS: null if unknown, for example of an incomplete checkpoint.
  // LIFETIME: until the next change.
  const CheckpointFacts* facts_of(const Hash& manifest) const;
  void failed(const Hash& manifest, const Error& error, Context& context);
  void progress(const ObjectProgress& progress);
  // The copy on disk is suspect: the next need() fetches it with `verify`.
  void distrust(const Hash& manifest);
  // Drops the shards that no slot uses. Shards, also partial ones, otherwise
  // stay for the next turn; a full disk evicts them first.
  void drop_unused_shards(Context& context);

  struct Progress {
    std::uint64_t bytes = 0;
    std::uint64_t total_bytes = 0;
  };
  Progress progress_of(const Hash& manifest) const;

 private:
  enum class State {
    // Possibly on disk, possibly in part: not requested yet by this process, or
    // cancelled. A fetch resumes from there.
    kOnDisk,
    kFetching,  // waits for ObjectStored or ObjectFailed
    kWaiting,   // failed; fetched again at retry_at
    kStored,
  };
  struct Entry {
    ObjectKind kind = ObjectKind::kShard;
    State state = State::kFetching;
    bool verify = false;
    std::uint64_t used_in = 0;  // the last step that named it
    unsigned failures = 0;
    Duration retry_at{};
    Progress progress;
    std::optional<CheckpointFacts> facts;
  };
  std::map<Hash, Entry> entries_;
  std::uint64_t step_ = 1;
};

inline bool is_set(const pb::ObjectRef& object) { return !object.manifest().empty(); }
// REQUIRES: is_set(object).
Hash name_of(const pb::ObjectRef& object);

}  // namespace skerry::daemon
