// SPDX-License-Identifier: Apache-2.0
// Every object on one disk, checkpoints and files, behind one set of words:
// begin, put, seal, read, drop. A file is a plain file in a folder, a
// checkpoint a family of the Store or a file as well; for both, a metadata key
// with the manifest is the commit marker (S6). An object that is being received
// keeps what was flushed, so that after a restart the transfer goes on.
//
// Keys: "object/<hex>" → manifest of a whole object, "partial/<hex>" → manifest
// of one that is being received. What lies on the disk and neither names is
// dropped at open().
//
// Thread rule: any thread; calls for one object must not overlap, except reads.
// Failure rule: as store.h; a change of a file that fails with kIo is the
// store's failure too.
#pragma once

#include <atomic>
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

// What is known of an object without reading its manifest again.
struct ObjectInfo {
  Hash name;
  ManifestKind kind = ManifestKind::kFile;
  std::uint64_t manifest_bytes = 0;
  std::uint64_t bytes = 0;
  Manifest facts;  // the manifest without its parts
};

// Where the chunks of checkpoints lie: the coordinator's in the store; a node's
// as one safetensors file each, which its engine maps as it is.
enum class Checkpoints { kInStore, kAsFiles };

class ObjectStore {
 public:
  // `store` and `files` must outlive this; `folder` is created. What is not
  // there any more as the key says, whole, is one that is being received.
  // kCorrupt: a manifest in the store does not fit its name.
  static Result<std::unique_ptr<ObjectStore>> open(Store& store, const std::string& folder,
                                                   Checkpoints checkpoints,
                                                   Files& files = posix_files());
  // The same, to be read only: of a store that belongs to somebody else, and is
  // left as it is. An object whose bytes are gone still counts as whole here;
  // reading it fails.
  static Result<std::unique_ptr<const ObjectStore>> view(Store& store, const std::string& folder,
                                                         Checkpoints checkpoints,
                                                         Files& files = posix_files());

  // Whole objects, in order of name; and those that are being received.
  std::vector<ObjectInfo> list() const;
  std::vector<ObjectInfo> partials() const;
  bool has(const Hash& object) const;  // whole
  Result<ObjectInfo> info(const Hash& object) const;
  // Of a whole object. kNotFound, kCorrupt.
  Result<NamedManifest> manifest(const Hash& object) const;
  // Of any object, whole or partial. kNotFound, kCorrupt.
  Result<NamedManifest> known_manifest(const Hash& object) const;

  // Makes the object known; the chunks that are there already come back (all of
  // them if it is whole). kExhausted: what is lacking has no room as a whole.
  Result<std::vector<Hash>> begin(const NamedManifest& object);
  // REQUIRES: begun, and blake2b(bytes) == chunk. kNotFound: not being
  // received. kInvalid: a chunk that is not of it.
  Result<void> put(const Hash& object, const Hash& chunk, std::string_view bytes);
  // Makes what was put so far survive a crash, without sealing. For long
  // transfers, now and then.
  Result<void> flush(const Hash& object);
  // On return the object is whole and durable, manifest and every chunk: only
  // now may anyone be told (S7). Sealing what is whole does nothing. kConflict:
  // chunks are missing. kNotFound: not begun.
  // On another failure a file must be begun again, and lacks nothing then.
  Result<void> seal(const Hash& object);

  // A chunk of a whole object, or its manifest where chunk == object; its hash
  // is checked. kNotFound, kCorrupt.
  Result<std::string> read(const Hash& object, const Hash& chunk) const;
  // Several chunks of a whole object, in their order; their hashes are looked
  // at together, which is quicker. The first that fails fails all.
  Result<std::vector<std::string>> read_each(const Hash& object,
                                             std::span<const Hash> chunks) const;
  // What read() gives, of an object that is being received: for whoever checks
  // the hash and takes nothing else from it, never for use. kNotFound: not
  // begun in this life, or not there yet.
  Result<std::string> read_received(const Hash& object, const Hash& chunk) const;
  // One chunk of any object, whole or partial; its hash is checked. For a copy
  // of what is left, never for serving.
  // REQUIRES: this is a view(). kNotFound: nothing is left of it, or not here
  // any more. kCorrupt: other bytes are.
  Result<std::string> salvage(const Hash& object, const Hash& chunk) const;
  // Where it lies, for mapping. Stable until it is dropped. kNotFound;
  // kInvalid: a checkpoint that is no file.
  Result<std::string> path_of(const Hash& object) const;
  // The same, opened for reading. ON FAILURE: as path_of(), and as
  // Files::open().
  Result<std::unique_ptr<File>> open_file(const Hash& object) const;
  // Reads every chunk of a whole object and looks at its hash, on many
  // processors. kNotFound, kCorrupt.
  Result<void> check(const Hash& object) const;
  // The same. An object that is not whole any more becomes one that is being
  // received: begin() then says what is left of it. True: it is whole.
  Result<bool> verify(const Hash& object);
  // Whole or not. Gives its space back. kNotFound.
  Result<void> drop(const Hash& object);

  // Makes a checkpoint of tensors in memory, whole and durable on return; the
  // same again is the same object. kInvalid: another library wrote them.
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
  mutable std::mutex mutex_;  // of the maps, never held over I/O
  std::map<Hash, ObjectPtr> objects_;
  mutable std::list<std::pair<Hash, std::shared_ptr<ChunkReader>>> readers_;  // the latest first
};

// The checkpoints of each (run, expert) beyond its `keep` latest steps, except
// pinned ones.
std::vector<Hash> beyond_last(const std::vector<ObjectInfo>& objects, std::size_t keep,
                              const std::unordered_set<Hash>& pinned);

}  // namespace skerry::storage
