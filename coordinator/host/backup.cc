// SPDX-License-Identifier: Apache-2.0
#include "coordinator/host/backup.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "coordinator/host/authority.h"
#include "coordinator/host/host.h"

namespace skerry::coordinator {
namespace {

// Copies the chunks that can be read. RETURNS: whether these are all.
Result<bool> copy_chunks(const storage::ObjectStore& from, storage::ObjectStore& to,
                         const storage::NamedManifest& object, bool is_last_attempt) {
  const bool should_be_whole = from.has(object.name);
  ASSIGN_OR_RETURN(const std::vector<Hash> there, to.begin(object));
  const std::set<Hash> present(there.begin(), there.end());
  bool is_whole = true;
  for (const storage::Chunk& chunk : storage::distinct_chunks(object.manifest)) {
    if (present.contains(chunk.hash)) continue;
    const Result<std::string> bytes = from.salvage(object.name, chunk.hash);
    if (bytes) {
      TRY(to.put(object.name, chunk.hash, *bytes));
      continue;
    }
    const ErrorCode why = bytes.error().code;
    // A running coordinator may have dropped or moved the object: the next
    // attempt sees what became of it. It never writes other bytes in the place
    // of the object's.
    const bool is_gone = why == ErrorCode::kNotFound || why == ErrorCode::kIo;
    const bool may_be_a_race = is_gone && should_be_whole && !is_last_attempt;
    if (may_be_a_race || (why != ErrorCode::kCorrupt && !is_gone)) return bytes.error();
    is_whole = false;
  }
  return is_whole;
}

// RETURNS: the objects that the state names and `to` has in part only.
Result<std::set<Hash>> copy_objects(const storage::ObjectStore& from, storage::ObjectStore& to,
                                    const std::vector<NamedObject>& named_objects,
                                    bool is_last_attempt) {
  std::set<Hash> named;
  std::set<Hash> wanted;
  for (const NamedObject& object : named_objects) {
    named.insert(object.manifest);
    // A complete object that is not whole is damaged; one that is not complete
    // is still being uploaded.
    if (object.complete) wanted.insert(object.manifest);
  }
  for (const storage::ObjectInfo& info : from.list()) wanted.insert(info.name);
  std::set<Hash> lacking;
  for (const Hash& name : wanted) {
    if (to.has(name)) continue;
    ASSIGN_OR_RETURN(const storage::NamedManifest object, from.known_manifest(name));
    ASSIGN_OR_RETURN(const bool is_whole, copy_chunks(from, to, object, is_last_attempt));
    if (is_whole) {
      TRY(to.seal(name));
    } else if (named.contains(name)) {
      TRY(to.flush(name));
      lacking.insert(name);
    } else {
      TRY(to.drop(name));
    }
  }
  // What an earlier attempt copied, and the coordinator dropped since.
  std::vector<storage::ObjectInfo> there = to.list();
  std::ranges::copy(to.partials(), std::back_inserter(there));
  for (const storage::ObjectInfo& info : there) {
    if (!wanted.contains(info.name)) TRY(to.drop(info.name));
  }
  return lacking;
}

}  // namespace

Result<CopiedData> copy_data(const CopyFrom& from, const CopyTo& to, const Authority& authority,
                             Now now, const std::optional<Restore>& restore, bool is_last_attempt) {
  ASSIGN_OR_RETURN(std::vector<KeyValue> state, read_state(from.store));
  if (state.empty()) return fail(ErrorCode::kInvalid, "there is no coordinator's state");
  const Config config;
  SystemRng rng;
  CopiedData copied;
  {
    ASSIGN_OR_RETURN(const auto core, Core::load(config, rng, authority, state, now));
    TRY(check_objects(*core, from.objects));
    copied.named = core->objects();
  }
  ASSIGN_OR_RETURN(copied.lacking,
                   copy_objects(from.objects, to.objects, copied.named, is_last_attempt));
  if (restore) {
    ASSIGN_OR_RETURN(state, Core::restored(state, restore->unix_ms, restore->tokens));
  }
  TRY(write_state(to.store, std::move(state)));  // last: without it the copy holds no state
  return copied;
}

}  // namespace skerry::coordinator
