// SPDX-License-Identifier: Apache-2.0
#include "coordinator/host/mirror.h"

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "base/text.h"
#include "coordinator/host/authority.h"
#include "coordinator/host/host.h"
#include "coordinator/state.pb.h"

namespace skerry::coordinator {
namespace {

constexpr char kOwner[] = "owner";
constexpr char kStates[] = "state/";
constexpr char kObjects[] = "objects/";
constexpr char kManifest[] = "manifest";
constexpr std::size_t kOwnerBytes = 256;
constexpr std::size_t kManifestBytes = std::size_t{256} << 20;
constexpr std::size_t kAtOnce = 16;  // chunks in memory while an object is read back

std::string object_key(const std::string& name, const std::string& part) {
  return text(kObjects, name, '/', part);
}

std::string encoded(const std::vector<KeyValue>& state) {
  stored::StateCopy copy;
  for (const KeyValue& entry : state) {
    stored::StateCopy::Entry& added = *copy.add_entries();
    added.set_key(entry.key);
    added.set_value(entry.value);
  }
  return copy.SerializeAsString();
}

// Sorted by time: thirteen digits of milliseconds.
std::string state_key(const std::string& bytes, std::int64_t unix_ms) {
  std::string digits = text(unix_ms);
  digits.insert(0, 13 - std::min<std::size_t>(13, digits.size()), '0');
  return text(kStates, digits, '-', blake2b(bytes).hex());
}

std::string hash_in(const std::string& state_key) {
  return state_key.substr(std::min(state_key.size(), state_key.find('-') + 1));
}

Result<std::vector<NamedObject>> objects_of(const std::vector<KeyValue>& state,
                                            const Authority& authority, Now now) {
  const Config config;
  SystemRng rng;
  ASSIGN_OR_RETURN(const auto core, Core::load(config, rng, authority, state, now));
  return core->objects();
}

Result<void> check_owner(const storage::Bucket& bucket, const std::string& owner,
                         const std::string& found) {
  if (found == to_hex(owner)) return {};
  if (!Hash::from_hex(found)) {
    return fail(ErrorCode::kInvalid, text(bucket.shown(), ": expected a coordinator's key in ",
                                          kOwner, ", found other bytes: is this its mirror?"));
  }
  return fail(ErrorCode::kConflict,
              text(bucket.shown(), " belongs to the coordinator ", found.substr(0, 12),
                   "…, not to this one, ", to_hex(owner).substr(0, 12),
                   "…: name another prefix, or use that coordinator's identity"));
}

}  // namespace

// The states are few, and show whether a backup by hand or a person has changed
// the bucket.
Result<void> Mirror::look() {
  if (has_looked_) {
    ASSIGN_OR_RETURN(const std::vector<storage::BucketItem> states, bucket_.list(kStates));
    const auto is_mine = [&](const storage::BucketItem& each) {
      return states_.contains(each.key);
    };
    if (states.size() == states_.size() && std::ranges::all_of(states, is_mine)) return {};
    has_looked_ = false;
  }
  objects_.clear();
  states_.clear();
  const Result<std::string> owner = bucket_.get(kOwner, kOwnerBytes);
  if (owner) {
    TRY(check_owner(bucket_, owner_, *owner));
  } else if (owner.error().code != ErrorCode::kNotFound) {
    return owner.error();
  } else {
    TRY(bucket_.put(kOwner, to_hex(owner_)));
  }
  ASSIGN_OR_RETURN(const std::vector<storage::BucketItem> states, bucket_.list(kStates));
  for (const storage::BucketItem& each : states) states_.insert(each.key);
  ASSIGN_OR_RETURN(const std::vector<storage::BucketItem> objects, bucket_.list(kObjects));
  for (const storage::BucketItem& each : objects) {
    const std::string rest = each.key.substr(sizeof kObjects - 1);
    const std::size_t slash = rest.find('/');
    if (slash != std::string::npos) objects_[rest.substr(0, slash)].insert(rest.substr(slash + 1));
  }
  has_looked_ = true;
  return {};
}

// RETURNS: whether the coordinator has all of it.
Result<bool> Mirror::send_object(const storage::ObjectStore& from,
                                 const storage::NamedManifest& object, bool is_last_attempt,
                                 const std::function<void(std::uint64_t)>& sent) {
  const std::string name = object.name.hex();
  Keys& there = objects_[name];
  std::vector<storage::Chunk> missing;
  for (const storage::Chunk& chunk : storage::distinct_chunks(object.manifest)) {
    if (there.contains(chunk.hash.hex())) {
      sent(chunk.bytes);
    } else {
      missing.push_back(chunk);
    }
  }
  std::vector<char> is_sent(missing.size(), 0);
  const auto send = [&](std::size_t i) -> Result<void> {
    const Result<std::string> bytes = from.salvage(object.name, missing[i].hash);
    if (!bytes) {
      const ErrorCode why = bytes.error().code;
      const bool is_gone = why == ErrorCode::kNotFound || why == ErrorCode::kIo;
      if ((is_gone && !is_last_attempt) || (!is_gone && why != ErrorCode::kCorrupt))
        return bytes.error();
      return {};
    }
    TRY(bucket_.put(object_key(name, missing[i].hash.hex()), *bytes));
    is_sent[i] = 1;
    sent(bytes->size());
    return {};
  };
  TRY(in_parallel(missing.size(), send));
  for (std::size_t i = 0; i < missing.size(); ++i) {
    if (is_sent[i] != 0) there.insert(missing[i].hash.hex());
  }
  if (std::ranges::find(is_sent, 0) != is_sent.end()) return false;
  TRY(bucket_.put(object_key(name, kManifest), object.encoded));
  there.insert(kManifest);
  return true;
}

// The manifest first: what is half removed is not whole.
Result<void> Mirror::remove_object(const std::string& name) {
  const Keys keys = objects_.at(name);
  if (keys.contains(kManifest)) TRY(bucket_.remove(object_key(name, kManifest)));
  const std::vector<std::string> chunks(keys.begin(), keys.end());
  TRY(in_parallel(chunks.size(), [&](std::size_t i) -> Result<void> {
    return chunks[i] == kManifest ? Result<void>{} : bucket_.remove(object_key(name, chunks[i]));
  }));
  objects_.erase(name);
  return {};
}

Result<void> Mirror::remove_others(const std::string& state, const std::set<std::string>& wanted,
                                   Mirrored& mirrored) {
  const std::set<std::string> states = states_;
  for (const std::string& each : states) {
    if (each == state) continue;
    TRY(bucket_.remove(each));
    states_.erase(each);
  }
  std::vector<std::string> others;
  for (const auto& [name, keys] : objects_) {
    if (!wanted.contains(name)) others.push_back(name);
  }
  for (const std::string& name : others) {
    TRY(remove_object(name));
    ++mirrored.removed;
  }
  return {};
}

Result<Mirrored> Mirror::update(const CopyFrom& from, const Authority& authority, Now now,
                                bool is_last_attempt, const MirrorProgress& progress) {
  ASSIGN_OR_RETURN(const std::vector<KeyValue> state, read_state(from.store));
  if (state.empty()) return fail(ErrorCode::kInvalid, "there is no coordinator's state");
  Mirrored mirrored;
  ASSIGN_OR_RETURN(mirrored.copied.named, objects_of(state, authority, now));
  TRY(look());
  const std::string bytes = encoded(state);
  const std::string key = state_key(bytes, now.unix_ms);
  const bool is_there = !states_.empty() && hash_in(*states_.rbegin()) == hash_in(key);
  std::map<Hash, storage::NamedManifest> objects;
  std::set<std::string> wanted;
  std::uint64_t total = 0;
  for (const NamedObject& named : mirrored.copied.named) {
    if (!named.complete || objects.contains(named.manifest)) continue;
    wanted.insert(named.manifest.hex());
    const auto there = objects_.find(named.manifest.hex());
    if (there != objects_.end() && there->second.contains(kManifest)) continue;
    ASSIGN_OR_RETURN(storage::NamedManifest object, from.objects.known_manifest(named.manifest));
    for (const storage::Chunk& chunk : storage::distinct_chunks(object.manifest))
      total += chunk.bytes;
    objects.emplace(named.manifest, std::move(object));
  }
  if (is_there && objects.empty()) return mirrored;
  has_looked_ = false;  // a failure leaves in doubt what the bucket has
  std::atomic<std::uint64_t> done = 0;
  std::atomic<std::uint64_t> sent = 0;
  for (const auto& [name, object] : objects) {
    ASSIGN_OR_RETURN(const bool is_whole,
                     send_object(from.objects, object, is_last_attempt, [&](std::uint64_t part) {
                       done += part;
                       if (progress) progress(done, total);
                     }));
    sent += object.encoded.size();
    if (!is_whole) mirrored.copied.lacking.insert(name);
  }
  if (!is_there) {
    TRY(bucket_.put(key, bytes));
    states_.insert(key);
    sent += bytes.size();
  }
  mirrored.sent_bytes = sent + done;
  TRY(remove_others(is_there ? *states_.rbegin() : key, wanted, mirrored));
  has_looked_ = true;
  return mirrored;
}

namespace {

Result<std::vector<KeyValue>> newest_state(const storage::Bucket& bucket) {
  ASSIGN_OR_RETURN(const std::vector<storage::BucketItem> states, bucket.list(kStates));
  if (states.empty()) {
    return fail(ErrorCode::kNotFound,
                text(bucket.shown(), " holds no coordinator's state: check the prefix"));
  }
  ASSIGN_OR_RETURN(const std::string bytes, bucket.get(states.back().key, states.back().bytes));
  stored::StateCopy copy;
  if (blake2b(bytes).hex() != hash_in(states.back().key) || !copy.ParseFromString(bytes)) {
    return fail(ErrorCode::kCorrupt, text(bucket.shown(), '/', states.back().key,
                                          " holds other bytes than were written"));
  }
  std::vector<KeyValue> state;
  for (stored::StateCopy::Entry& entry : *copy.mutable_entries())
    state.push_back({std::move(*entry.mutable_key()), std::move(*entry.mutable_value())});
  return state;
}

// RETURNS: the manifest; nothing where the bucket lacks the object.
Result<std::optional<storage::NamedManifest>> manifest_in(const storage::Bucket& bucket,
                                                          const Hash& name) {
  Result<std::string> bytes = bucket.get(object_key(name.hex(), kManifest), kManifestBytes);
  if (!bytes && bytes.error().code == ErrorCode::kNotFound)
    return std::optional<storage::NamedManifest>();
  if (!bytes) return bytes.error();
  if (blake2b(*bytes) != name) return std::optional<storage::NamedManifest>();
  ASSIGN_OR_RETURN(storage::NamedManifest manifest, storage::decode_manifest(std::move(*bytes)));
  return std::optional(std::move(manifest));
}

// RETURNS: whether the bucket has all of it.
Result<bool> fetch_object(const storage::Bucket& bucket, const storage::NamedManifest& object,
                          storage::ObjectStore& to,
                          const std::function<void(std::uint64_t)>& fetched) {
  ASSIGN_OR_RETURN(const std::vector<Hash> there, to.begin(object));
  const std::set<Hash> present(there.begin(), there.end());
  std::vector<storage::Chunk> missing;
  for (const storage::Chunk& chunk : storage::distinct_chunks(object.manifest)) {
    if (present.contains(chunk.hash)) {
      fetched(chunk.bytes);
    } else {
      missing.push_back(chunk);
    }
  }
  bool is_whole = true;
  for (std::size_t first = 0; first < missing.size(); first += kAtOnce) {
    const std::size_t count = std::min(kAtOnce, missing.size() - first);
    std::vector<std::string> chunks(count);
    TRY(in_parallel(count, [&](std::size_t i) -> Result<void> {
      const Hash& hash = missing[first + i].hash;
      Result<std::string> bytes =
          bucket.get(object_key(object.name.hex(), hash.hex()), storage::kMaxChunkBytes);
      if (!bytes && bytes.error().code != ErrorCode::kNotFound) return bytes.error();
      if (bytes && blake2b(*bytes) == hash) chunks[i] = std::move(*bytes);
      return {};
    }));
    for (std::size_t i = 0; i < count; ++i) {
      if (chunks[i].empty()) {
        is_whole = false;
        continue;
      }
      TRY(to.put(object.name, missing[first + i].hash, chunks[i]));
      fetched(chunks[i].size());
    }
    TRY(to.flush(object.name));
  }
  if (is_whole) TRY(to.seal(object.name));
  return is_whole;
}

}  // namespace

Result<CopiedData> restore_from(const storage::Bucket& bucket, const std::string& owner,
                                const CopyTo& to, const Authority& authority, Now now,
                                const Restore& restore, const MirrorProgress& progress) {
  const Result<std::string> found = bucket.get(kOwner, kOwnerBytes);
  if (!found && found.error().code == ErrorCode::kNotFound) {
    return fail(ErrorCode::kNotFound,
                text(bucket.shown(), " holds no coordinator's state: check the prefix"));
  }
  if (!found) return found.error();
  TRY(check_owner(bucket, owner, *found));
  ASSIGN_OR_RETURN(std::vector<KeyValue> state, newest_state(bucket));
  CopiedData copied;
  ASSIGN_OR_RETURN(copied.named, objects_of(state, authority, now));
  std::map<Hash, storage::NamedManifest> objects;
  std::uint64_t total = 0, done = 0;
  for (const NamedObject& named : copied.named) {
    if (!named.complete || to.objects.has(named.manifest) || objects.contains(named.manifest))
      continue;
    ASSIGN_OR_RETURN(auto manifest, manifest_in(bucket, named.manifest));
    if (!manifest) {
      copied.lacking.insert(named.manifest);
      continue;
    }
    for (const storage::Chunk& chunk : storage::distinct_chunks(manifest->manifest))
      total += chunk.bytes;
    objects.emplace(named.manifest, std::move(*manifest));
  }
  for (const auto& [name, object] : objects) {
    ASSIGN_OR_RETURN(const bool is_whole,
                     fetch_object(bucket, object, to.objects, [&](std::uint64_t part) {
                       done += part;
                       if (progress) progress(done, total);
                     }));
    if (!is_whole) copied.lacking.insert(name);
  }
  if (!copied.lacking.empty() && !restore.partial) {
    return fail(ErrorCode::kCorrupt,
                text(bucket.shown(), " lacks ", copied.lacking.size(), " of ", copied.named.size(),
                     " objects, or gives other bytes for them: ask again, as the rest is here; or "
                     "begin without them by --partial: nodes that hold them give them back"));
  }
  ASSIGN_OR_RETURN(state, Core::restored(state, restore.unix_ms, restore.tokens));
  TRY(write_state(to.store, std::move(state)));  // last: without it the copy holds no state
  return copied;
}

}  // namespace skerry::coordinator
