// SPDX-License-Identifier: Apache-2.0
// All objects on one disk, checkpoints and files, behind one interface: begin,
// put, seal, read, drop. A file is a plain file in a folder. A checkpoint is a
// family of the Store, or a file as well. For both, a metadata key with the
// manifest is the commit marker (S6). A partial object keeps its flushed
// chunks, so its transfer resumes after a restart.
//
// Keys: "object/<hex>" → the manifest of a whole object, "partial/<hex>" → the
// manifest of a partial one. open() drops data on the disk that neither names.
//
// THREADS: any; calls for one object must not overlap, except reads.
// ON FAILURE: as store.h. If a change of a file fails with kIo, the store has
// failed too.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "storage/chunk_file.h"
#include "storage/files.h"
#include "storage/manifest.h"
#include "storage/store.h"

namespace skerry::storage {

// The facts of an object that need no second read of its manifest.
struct ObjectInfo {
  Hash name;
  ManifestKind kind = ManifestKind::kFile;
  std::uint64_t manifest_bytes = 0;
  std::uint64_t bytes = 0;
  Manifest facts;  // the manifest without its parts
};

// Where the chunks of checkpoints lie. The coordinator keeps them in the store.
// A node keeps one safetensors file each, which its engine maps directly.
enum class Checkpoints { kInStore, kAsFiles };

class ObjectStore {
 public:
  // Creates `folder`. A whole object whose data is gone becomes a partial one.
  // LIFETIME: `store` and `files` outlive this.
  // ON FAILURE: kCorrupt: a manifest in the store does not match its name.
  static Result<std::unique_ptr<ObjectStore>> open(Store& store, const std::string& folder,
                                                   Checkpoints checkpoints,
                                                   Files& files = posix_files());
  // Opens a store of another owner for reading only, and changes nothing. An
  // object whose bytes are gone still counts as whole here; reading it fails.
  static Result<std::unique_ptr<const ObjectStore>> view(Store& store, const std::string& folder,
                                                         Checkpoints checkpoints,
                                                         Files& files = posix_files());

  // RETURNS: whole objects in order of name, and partial ones.
  std::vector<ObjectInfo> list() const;
  std::vector<ObjectInfo> partials() const;
  // Visits whole objects in order of name. REQUIRES: `visit` does not use this
  // store.
  void each(const std::function<void(const ObjectInfo&)>& visit) const;
  bool has(const Hash& object) const;  // whole
  Result<ObjectInfo> info(const Hash& object) const;
  // RETURNS: the manifest of a whole object.
  // ON FAILURE: kNotFound, kCorrupt.
  Result<NamedManifest> manifest(const Hash& object) const;
  // RETURNS: the manifest of any object, whole or partial.
  // ON FAILURE: kNotFound, kCorrupt.
  Result<NamedManifest> known_manifest(const Hash& object) const;

  // Starts or resumes to receive the object.
  // RETURNS: the chunks that are already there; all of them if it is whole.
  // ON FAILURE: kExhausted: there is no room for all missing chunks.
  Result<std::vector<Hash>> begin(const NamedManifest& object);
  // REQUIRES: begin() was called, and blake2b(bytes) == chunk.
  // ON FAILURE: kNotFound: the object is not being received. kInvalid: not a
  // chunk of it.
  Result<void> put(const Hash& object, const Hash& chunk, std::string_view bytes);
  // Makes the chunks put so far survive a crash, without sealing. Long
  // transfers call it now and then.
  Result<void> flush(const Hash& object);
  // Makes the object whole and durable, manifest and every chunk. Only after it
  // returns may any other party be told (S7). Does nothing if the object is
  // whole.
  // ON FAILURE: kConflict: chunks are missing. kNotFound: not begun. After any
  // other failure, begin() a file again; it then lacks no chunk.
  Result<void> seal(const Hash& object);

  // RETURNS: a chunk of a whole object, or its manifest if chunk == object.
  // Checks its hash.
  // ON FAILURE: kNotFound, kCorrupt.
  Result<std::string> read(const Hash& object, const Hash& chunk) const;
  // RETURNS: several chunks of a whole object, in order. Checks their hashes
  // together, which is faster. Fails if one fails.
  Result<std::vector<std::string>> read_each(const Hash& object,
                                             std::span<const Hash> chunks) const;
  // As read(), but of an object that is being received. It serves copies to
  // peers that check the hash; use the bytes for nothing else.
  // ON FAILURE: kNotFound: not begun in this process, or not there yet.
  Result<std::string> read_received(const Hash& object, const Hash& chunk) const;
  // RETURNS: one chunk of any object, whole or partial. Checks its hash. It
  // serves to copy what is left of a store, never to serve peers.
  // REQUIRES: this is a view().
  // ON FAILURE: kNotFound: no chunk is left, or it is gone now. kCorrupt: other
  // bytes are there.
  Result<std::string> salvage(const Hash& object, const Hash& chunk) const;
  // RETURNS: the path of its file, for mapping. It stays valid until drop().
  // ON FAILURE: kNotFound; kInvalid: a checkpoint that is no file.
  Result<std::string> path_of(const Hash& object) const;
  // Opens that file for reading.
  // ON FAILURE: as path_of() and Files::open().
  Result<std::unique_ptr<File>> open_file(const Hash& object) const;
  // Reads every chunk of a whole object and checks its hash, on many
  // processors.
  // ON FAILURE: kNotFound, kCorrupt.
  Result<void> check(const Hash& object) const;
  // As check(). A damaged object becomes a partial one; begin() then returns
  // its intact chunks.
  // RETURNS: whether it is whole.
  Result<bool> verify(const Hash& object);
  // Removes the object, whole or partial, and frees its space.
  // ON FAILURE: kNotFound.
  Result<void> drop(const Hash& object);

  // Stores a checkpoint of tensors in memory, whole and durable on return.
  // Equal tensors and facts give the same object.
  // ON FAILURE: kInvalid: another library wrote the tensors.
  Result<NamedManifest> store_checkpoint(const Safetensors& tensors, Manifest facts);

 private:
  enum class State { kPartial, kWhole };
  struct Object;
  using ObjectPtr = std::shared_ptr<Object>;

  ObjectStore(Store& store, Files& files, std::string folder, Checkpoints checkpoints)
      : store_(store), files_(files), folder_(std::move(folder)), checkpoints_(checkpoints) {}
  Result<void> load(std::string_view prefix, State state);
  Result<void> drop_unnamed();
  Result<void> take_back(const std::string& path);
  Result<ObjectPtr> find(const Hash& object) const;
  Result<ObjectPtr> find_partial(const Hash& object) const;
  Result<NamedManifest> manifest_at(const std::string& key, const Hash& object) const;
  Result<std::string> encoded_manifest(const std::string& key, const Hash& object) const;
  std::string path_to(const Hash& object) const;
  std::string path_to_bytes(const Object& object) const;
  ObjectPtr make_object(const NamedManifest& named, State state) const;
  Result<void> notice_what_is_gone();
  Result<void> become_partial(Object& object);
  Result<std::shared_ptr<ChunkReader>> reader_of(const Object& object) const;
  std::vector<ObjectInfo> list_in(State state) const;
  Result<NamedManifest> store_as_file(const Safetensors& tensors, Manifest facts);
  template <class T>
  Result<T> noted(Result<T> outcome);

  Store& store_;
  Files& files_;
  std::string folder_;
  Checkpoints checkpoints_;
  std::atomic<unsigned> snapshots_ = 0;
  mutable std::mutex mutex_;  // guards the maps; never held during I/O
  std::map<Hash, ObjectPtr> objects_;
  mutable std::list<std::pair<Hash, std::shared_ptr<ChunkReader>>> readers_;  // the latest first
};

// RETURNS: the checkpoints of each (run, expert) older than its `keep` latest
// steps, except pinned ones.
std::vector<Hash> beyond_last(const std::vector<ObjectInfo>& objects, std::size_t keep,
                              const std::unordered_set<Hash>& pinned);

}  // namespace skerry::storage
