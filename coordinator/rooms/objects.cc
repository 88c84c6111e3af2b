// SPDX-License-Identifier: Apache-2.0
#include "coordinator/rooms/objects.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "protocol/limits.h"

namespace skerry::coordinator {
namespace {

constexpr std::size_t kVerifications = 16;  // at once, or done and not yet asked for
constexpr Duration kVerdictKept = std::chrono::minutes(1);  // for an asker who has gone

}  // namespace

const StoredObject* Objects::find(const Hash& manifest) const {
  const auto found = stored_.find(manifest);
  return found == stored_.end() ? nullptr : &found->second;
}

void Objects::name(const std::string& manifest) {
  const Hash hash = *Hash::from_raw(manifest);
  ++named_[hash];
  unclaimed_.erase(hash);
}

void Objects::unname(const std::string& manifest, Purpose purpose) {
  const Hash hash = *Hash::from_raw(manifest);
  const auto found = named_.find(hash);
  SKERRY_CHECK(found != named_.end(), "an object is named no more often than it was named");
  if (--found->second > 0) return;
  named_.erase(found);
  damaged_.erase(hash);
  if (is_being_read(hash)) {
    unclaimed_[hash] = now.boot;  // goes once its reader has gone
    return;
  }
  stored_.erase(hash);
  drop_once_durable({hash, purpose});
}

// Its batch must be durable first: until then the durable state may still name
// the object.
void Objects::drop_once_durable(const Drop& drop) {
  // A batch in between may have named it again.
  std::erase_if(leaving_, [&](const auto& each) { return each.first.manifest == drop.manifest; });
  leaving_.push_back({drop, kThisBatch});
}

void Objects::drop_unnamed(std::map<Hash, StoredObject>::iterator object) {
  drop_once_durable(
      {object->first, object->second.checkpoint ? Purpose::kCheckpoint : Purpose::kFile});
  stored_.erase(object);
}

bool Objects::is_leaving(const Hash& manifest) const {
  return std::ranges::any_of(leaving_,
                             [&](const auto& each) { return each.first.manifest == manifest; });
}

// What became known or wanted again meanwhile stays: a dataset that was deleted
// and added again, a commit that is sent again.
void Objects::drop_leaving(const IsWanted& is_wanted) {
  for (auto last = leaving_.rbegin(); last != leaving_.rend() && last->second == kThisBatch; ++last)
    last->second = context.batch;
  for (; !leaving_.empty() && leaving_.front().second <= context.persisted; leaving_.pop_front()) {
    const Drop& drop = leaving_.front().first;
    const bool is_back = has(drop.manifest) || is_wanted(drop.manifest);
    if (!is_back) effects.drops.push_back(drop);
  }
}

void Objects::keep_for_reader(const NodeId& person, const ConnectionId& connection,
                              const pb::EnsembleReply& ensemble) {
  // Asking anew ends what an earlier connection held: as many as there are
  // connections, never more.
  std::erase_if(reading_, [&](const auto& reader) {
    return reader.second.person == person && !peers_.contains(reader.first);
  });
  Reader& reader = reading_[connection];
  reader = {person, {}, now.boot + config.unclaimed_objects};
  const auto keep = [&](const pb::EnsembleExpert& expert) {
    if (!expert.checkpoint().manifest().empty())
      reader.checkpoints.insert(*Hash::from_raw(expert.checkpoint().manifest()));
  };
  for (const pb::EnsembleExpert& expert : ensemble.experts()) keep(expert);
  keep(ensemble.learned_router());
}

void Objects::forget_readers() {
  for (auto& [connection, reader] : reading_) {
    if (peers_.contains(connection)) reader.until = now.boot + config.unclaimed_objects;
  }
  std::erase_if(reading_, [&](const auto& reader) { return reader.second.until < now.boot; });
}

bool Objects::is_being_read(const Hash& manifest) const {
  return std::ranges::any_of(
      reading_, [&](const auto& reader) { return reader.second.checkpoints.contains(manifest); });
}

void Objects::drop_unclaimed(const IsWanted& is_wanted) {
  forget_readers();
  std::erase_if(unclaimed_, [&](const auto& object) {
    if (now.boot - object.second < config.unclaimed_objects) return false;
    if (is_being_read(object.first)) return false;
    if (is_wanted(object.first)) return true;
    const auto found = stored_.find(object.first);
    if (found == stored_.end()) return true;
    drop_unnamed(found);
    return true;
  });
}

// Told once, and once more when there is room.
void Objects::disk_is_full(std::uint64_t needed) {
  const bool told = disk_lacks_ > 0;
  disk_lacks_ = std::max(disk_lacks_, needed);
  if (told) return;
  events_.tell(EventKind::kDiskFull,
               text("the coordinator's disk has ", human_bytes(*disk_free_), " free, ",
                    human_bytes(needed), " are needed: commits wait for room"));
}

void Objects::disk_measured(std::uint64_t bytes) {
  disk_free_ = bytes;
  if (bytes < config.reserve_bytes) disk_is_full(config.reserve_bytes);
  if (disk_lacks_ == 0 || bytes < disk_lacks_) return;
  disk_lacks_ = 0;
  events_.tell(EventKind::kDiskRoom,
               text("the coordinator's disk has ", human_bytes(bytes), " free again"));
}

bool Objects::store(const ObjectStored& event) {
  stored_[event.manifest] = {event.manifest_bytes, event.bytes, event.checkpoint, event.facts};
  return damaged_.erase(event.manifest) > 0;
}

bool Objects::damage(const Hash& manifest) {
  const auto found = stored_.find(manifest);
  if (is_named(manifest)) {
    if (found != stored_.end()) stored_.erase(found);
    return damaged_.insert(manifest).second;
  }
  // A commit that still waits for it has it fetched anew.
  if (found == stored_.end()) return false;
  drop_unnamed(found);
  unclaimed_.erase(manifest);
  return false;
}

bool Objects::has_room(std::uint64_t bytes) const {
  return !disk_free_ || *disk_free_ >= config.reserve_bytes + bytes;
}

Result<void> Objects::check_room(std::uint64_t bytes, const std::string& who) const {
  if (has_room(bytes)) return {};
  return fail(
      ErrorCode::kExhausted,
      text(who, " needs ", human_bytes(bytes), " and the coordinator's disk has ",
           human_bytes(disk_free_.value_or(0)), " free, of which ",
           human_bytes(config.reserve_bytes), " are kept in reserve: make room and ask again"));
}

Result<pb::AdminReply> Objects::verify(const Hash& manifest, const std::string& trouble) {
  if (!is_named(manifest)) {
    verifications_.erase(manifest);
    return fail(ErrorCode::kNotFound,
                text("object ", manifest.short_hex(),
                     " is not named by any run or dataset, or not any longer"));
  }
  pb::AdminReply reply;
  auto& answer = *reply.mutable_verified();
  const auto said = verifications_.find(manifest);
  if (said != verifications_.end()) {
    Verification& verification = said->second;
    verification.asked = now.boot;
    answer.set_done(verification.done);
    answer.set_checked_bytes(verification.bytes);
    answer.set_chunks(verification.chunks);
    for (const Hash& chunk : verification.damaged) answer.add_damaged(chunk.raw());
    if (verification.done) {
      answer.set_trouble(verification.trouble);
      verifications_.erase(said);
    }
  } else if (is_damaged(manifest)) {
    answer.set_done(true);
    answer.set_trouble(trouble);
  } else if (!has(manifest)) {
    return fail(ErrorCode::kConflict,
                text("object ", manifest.short_hex(), " is still on its way"));
  } else if (verifications_.size() <
             kVerifications) {  // else it waits: asked again, it may be its turn
    verifications_[manifest].asked = now.boot;
    effects.verifies.push_back(manifest);
  }
  return reply;
}

void Objects::checked(const ObjectChecked& event, const std::string& trouble) {
  const auto found = verifications_.find(event.manifest);
  if (found == verifications_.end()) return;
  Verification& verification = found->second;
  verification.bytes = event.bytes;
  verification.chunks = event.chunks;
  verification.done = event.done;
  if (event.done) verification.trouble = trouble;
  verification.damaged = event.damaged;
  if (verification.damaged.size() > protocol::kDamagedChunks)
    verification.damaged.resize(protocol::kDamagedChunks);
}

void Objects::forget_verdicts() {
  std::erase_if(verifications_, [&](const auto& each) {
    return each.second.done && each.second.asked + kVerdictKept < now.boot;
  });
}

}  // namespace skerry::coordinator
