// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/objects.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace skerry::daemon {

Hash name_of(const pb::ObjectRef& object) {
  const Result<Hash> hash = Hash::from_raw(object.manifest());
  SKERRY_CHECK(hash.has_value(), "an object reference that was not validated");
  return *hash;
}

Objects::Objects(const std::map<Hash, ObjectKind>& found,
                 const std::map<Hash, CheckpointFacts>& checkpoints) {
  for (const auto& [hash, kind] : found)
    entries_[hash] = Entry{.kind = kind, .state = State::kOnDisk};
  for (const auto& [hash, facts] : checkpoints) {
    if (const auto at = entries_.find(hash); at != entries_.end()) at->second.facts = facts;
  }
}

bool Objects::need(const pb::ObjectRef& object, ObjectKind kind, Context& context) {
  const Hash hash = name_of(object);
  auto at = entries_.find(hash);
  if (at == entries_.end())
    at = entries_.emplace(hash, Entry{.kind = kind, .state = State::kOnDisk}).first;
  Entry& entry = at->second;
  entry.used_in = step_;
  if (entry.state == State::kStored) return true;
  if (entry.state == State::kFetching) return false;
  if (entry.state == State::kWaiting && !context.due(entry.retry_at)) return false;
  entry.state = State::kFetching;
  context.log(LogLevel::kInfo,
              text("fetching ", kind == ObjectKind::kShard ? "shard " : "checkpoint ",
                   hash.short_hex(), ", ", human_bytes(object.bytes())));
  context.out.fetches.push_back({object, kind, entry.verify});
  return false;
}

void Objects::keep(const pb::ObjectRef& object) {
  if (!is_set(object)) return;
  if (const auto at = entries_.find(name_of(object)); at != entries_.end())
    at->second.used_in = step_;
}

void Objects::end_step(bool may_drop, Context& context) {
  for (auto at = entries_.begin(); at != entries_.end();) {
    Entry& entry = at->second;
    const bool is_used = entry.used_in == step_;
    if (!is_used && entry.state == State::kFetching) {
      context.out.cancels.push_back(at->first);
      entry.state = State::kOnDisk;  // in part, or whole if its end crosses the cancel
    }
    if (!is_used && entry.kind == ObjectKind::kCheckpoint && may_drop) {
      context.out.drops.push_back({at->first, entry.kind});
      at = entries_.erase(at);
    } else {
      ++at;
    }
  }
}

std::vector<Hash> Objects::checkpoints_on_disk() const {
  std::vector<Hash> found;
  for (const auto& [hash, entry] : entries_) {
    const bool is_here = entry.state == State::kStored || entry.state == State::kOnDisk;
    if (entry.kind == ObjectKind::kCheckpoint && is_here) found.push_back(hash);
  }
  return found;
}

void Objects::stored(const Hash& manifest, const std::optional<CheckpointFacts>& facts) {
  const auto at = entries_.find(manifest);
  if (at == entries_.end()) return;  // dropped meanwhile
  if (facts) at->second.facts = facts;
  at->second.state = State::kStored;
  at->second.verify = false;
  at->second.failures = 0;
}

bool Objects::is_stored(const Hash& manifest) const {
  const auto at = entries_.find(manifest);
  return at != entries_.end() && at->second.state == State::kStored;
}

void Objects::made(const pb::ObjectRef& object, const std::optional<CheckpointFacts>& facts) {
  entries_[name_of(object)] = Entry{
      .kind = ObjectKind::kCheckpoint, .state = State::kStored, .progress = {}, .facts = facts};
}

const CheckpointFacts* Objects::facts_of(const Hash& manifest) const {
  const auto at = entries_.find(manifest);
  return at == entries_.end() || !at->second.facts ? nullptr : &*at->second.facts;
}

void Objects::failed(const Hash& manifest, const Error& error, Context& context) {
  const auto at = entries_.find(manifest);
  if (at == entries_.end() || at->second.state != State::kFetching) return;
  Entry& entry = at->second;
  const Duration wait =
      std::min(kFetchRetryFirst * (1U << std::min(entry.failures, 10U)), kFetchRetryLast);
  ++entry.failures;
  entry.state = State::kWaiting;
  entry.retry_at = context.now.boot + wait;
  context.wake(entry.retry_at);
  context.log(LogLevel::kWarning, text("cannot fetch ", manifest.short_hex(), ": ", error.message,
                                       "; trying again in ", human_duration(wait)));
  if (error.code == ErrorCode::kExhausted) drop_unused_shards(context);
}

void Objects::progress(const ObjectProgress& progress) {
  if (const auto at = entries_.find(progress.manifest); at != entries_.end()) {
    at->second.progress = {progress.bytes, progress.total_bytes};
  }
}

void Objects::distrust(const Hash& manifest) {
  if (const auto at = entries_.find(manifest);
      at != entries_.end() && at->second.state == State::kStored) {
    at->second.state = State::kOnDisk;
    at->second.verify = true;
  }
}

void Objects::drop_unused_shards(Context& context) {
  std::erase_if(entries_, [&](const auto& item) {
    const Entry& entry = item.second;
    if (entry.kind != ObjectKind::kShard || entry.used_in == step_ ||
        entry.state == State::kFetching)
      return false;
    context.out.drops.push_back({item.first, entry.kind});
    return true;
  });
}

Objects::Progress Objects::progress_of(const Hash& manifest) const {
  const auto at = entries_.find(manifest);
  return at == entries_.end() ? Progress{} : at->second.progress;
}

}  // namespace skerry::daemon
