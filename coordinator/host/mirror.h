// SPDX-License-Identifier: Apache-2.0
// A copy of a coordinator's state and objects in a bucket, and the way back.
//
// Keys, below the bucket's prefix:
// - owner: the coordinator's Ed25519 key, in hex.
// - state/<ms>-<hash>: a state by its BLAKE2b-256, and when it was written.
// - objects/<name>/<chunk>: a chunk of an object.
// - objects/<name>/manifest: its manifest, written after its chunks.
//
// Invariant: the newest state names only objects that are whole here, but for
// those that the coordinator lacked. A state is written after its objects.
// Nothing is removed before a newer state, which no longer names it, is there.
// A kill at any moment keeps that.
//
// THREADS: one at a time; blocks on the network and the disk.
// ON FAILURE: as bucket.h. kConflict: the bucket belongs to another
// coordinator. Call again: what is there already is not sent again.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "coordinator/host/backup.h"
#include "storage/bucket/bucket.h"

namespace skerry::coordinator {

struct Mirrored {
  CopiedData copied;
  std::uint64_t sent_bytes = 0;  // of chunks, manifests and the state
  std::size_t removed = 0;       // objects
};

// Bytes of objects, so far and of all. THREADS: any, several at once.
using MirrorProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

class Mirror {
 public:
  // `owner`: the coordinator's Ed25519 key. LIFETIME: `bucket` outlives this.
  Mirror(storage::Bucket& bucket, std::string owner) : bucket_(bucket), owner_(std::move(owner)) {}

  // Brings the bucket up to this state. Sends and removes nothing if the state
  // is there already.
  // ON FAILURE: also as copy_data().
  Result<Mirrored> update(const CopyFrom& from, const Authority& authority, Now now,
                          bool is_last_attempt, const MirrorProgress& progress = {});

 private:
  using Keys = std::set<std::string>;  // of one object: chunks in hex, "manifest"

  Result<void> look();
  Result<bool> send_object(const storage::ObjectStore& from, const storage::NamedManifest& object,
                           bool is_last_attempt, const std::function<void(std::uint64_t)>& sent);
  Result<void> remove_object(const std::string& name);
  Result<void> remove_others(const std::string& state, const std::set<std::string>& wanted,
                             Mirrored& mirrored);

  storage::Bucket& bucket_;
  std::string owner_;
  bool has_looked_ = false;
  std::map<std::string, Keys> objects_;  // that the bucket has, by name in hex
  std::set<std::string> states_;         // keys
};

// Restores the newest state of the bucket and its objects. It resumes where an
// earlier call was interrupted.
// REQUIRES: `to` holds no state.
// ON FAILURE: also kNotFound: the bucket holds no state. kCorrupt: it lacks
// objects, or holds other bytes. What is whole is in `to` then.
Result<CopiedData> restore_from(const storage::Bucket& bucket, const std::string& owner,
                                const CopyTo& to, const Authority& authority, Now now,
                                const Restore& restore, const MirrorProgress& progress = {});

}  // namespace skerry::coordinator
