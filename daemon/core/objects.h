// SPDX-License-Identifier: Apache-2.0
// The objects that slots need and those that lie on the disk: asks for what is
// missing, again after a failure, cancels what nobody wants any more, and names
// what may be dropped. Part of the core.
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

  // Level-triggered: every step, each slot names all that it needs before it
  // can start and all that it merely keeps.
  void begin_step() { ++step_; }
  // True when it is stored. Asks for it otherwise.
  bool need(const pb::ObjectRef& object, ObjectKind kind, Context& context);
  void keep(const pb::ObjectRef& object);
  // Cancels and drops what no slot named. Nothing is dropped before a
  // coordinator has answered (`may_drop`).
  void end_step(bool may_drop, Context& context);

  std::vector<Hash> checkpoints_on_disk() const;
  void stored(const Hash& manifest, const std::optional<CheckpointFacts>& facts);
  bool is_stored(const Hash& manifest) const;
  // A checkpoint that this node made.
  void made(const pb::ObjectRef& object, const std::optional<CheckpointFacts>& facts);
  // Null: not known, as of one that is not whole. Until the next change.
  const CheckpointFacts* facts_of(const Hash& manifest) const;
  void failed(const Hash& manifest, const Error& error, Context& context);
  void progress(const ObjectProgress& progress);
  // What is on disk under this name is not to be believed: the next need() asks
  // for it with `verify`.
  void distrust(const Hash& manifest);
  // Files stay for the next turn, also those that have come in part, as long as
  // there is room; a full disk takes them first.
  void drop_unused_shards(Context& context);

  struct Progress {
    std::uint64_t bytes = 0;
    std::uint64_t total_bytes = 0;
  };
  Progress progress_of(const Hash& manifest) const;

 private:
  enum class State {
    // perhaps, perhaps in part: not asked for yet in this process, or
    // cancelled; a fetch goes on from there
    kOnDisk,
    kFetching,  // waits for ObjectStored or ObjectFailed
    kWaiting,   // failed; asked again at retry_at
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

// The name of an object; nothing for an empty reference.
inline bool is_set(const pb::ObjectRef& object) { return !object.manifest().empty(); }
Hash name_of(const pb::ObjectRef& object);

}  // namespace skerry::daemon
