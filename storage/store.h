// SPDX-License-Identifier: Apache-2.0
// The Store seam: small metadata that is atomic and synced, and families of
// chunks that are written in any order, flushed once and dropped whole. A
// checkpoint is a family; its manifest, a metadata key, is the commit marker.
//
// Thread rule: every method may be called from any thread; methods block on the
// disk.
// Failure rule: after a failed write, flush, create or drop the outcome is
// unknown, failed() is true and every further change is refused with the first
// error: the process must end and recover at its next start (a retried fsync
// can succeed falsely). One exception: kExhausted with failed() still false
// means that the store saw too little free space beforehand and touched
// nothing; retry when there is room. Reads go on in either case.
#pragma once

#include <cstddef>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/ids.h"
#include "base/result.h"

namespace skerry::storage {

inline constexpr std::size_t kMaxChunkBytes = 4 << 20;
inline constexpr std::size_t kMaxKeyBytes = 1024;
inline constexpr std::size_t kMaxFamilyNameBytes = 200;

// [A-Za-z0-9._-], 1 … 200 characters, not "default". Name a family by the
// checkpoint attempt that fills it (run, expert, step, epoch, attempt), never
// by (expert, round) alone: two epochs can produce the same round.
using FamilyName = StringId<struct FamilyTag>;

struct Write {
  std::string key;
  std::optional<std::string> value;  // nothing: the key is removed
};

enum class Room { kAsked, kLast };

struct Entry {
  std::string key;
  std::string value;
  auto operator<=>(const Entry&) const = default;
};

// kCorrupt where one of these is not its chunk's hash; names it, and what it is
// a chunk `of`.
Result<void> check_hashes(std::span<const std::string_view> chunks, std::span<const Hash> hashes,
                          std::string_view of);

class Store {
 public:
  virtual ~Store() = default;

  // ---- Metadata ----
  // All of the batch or nothing, durable on return. Later writes of the batch
  // win over earlier ones of the same key. kInvalid: an empty or overlong key.
  // A batch that only removes, or that is part of what makes room
  // (Room::kLast), is written without asking whether there is any.
  Result<void> write(std::span<const Write> batch, Room room = Room::kAsked);
  Result<void> write(std::initializer_list<Write> batch) {
    return write(std::span(batch.begin(), batch.size()));
  }
  // Nothing where the key is not there. kCorrupt: the medium is damaged.
  Result<std::optional<std::string>> get(std::string_view key) const { return do_get(key); }
  // Every entry whose key begins with prefix, in order of key.
  Result<std::vector<Entry>> scan(std::string_view prefix) const { return do_scan(prefix); }

  // ---- Families of chunks ----
  // Durable on return. kConflict: exists. kInvalid: not a family's name.
  Result<void> create_family(const FamilyName& family);
  // Readable on return, durable after the next flush of its family. REQUIRES:
  // blake2b(bytes) == hash, checked by whoever received them. Putting the same
  // chunk again is allowed. kNotFound: no such family. kInvalid: over
  // kMaxChunkBytes.
  Result<void> put_chunk(const FamilyName& family, const Hash& hash, std::string_view bytes);
  // Every chunk put before this call survives a crash from here on. kNotFound:
  // no such family.
  Result<void> flush(const FamilyName& family);
  // Its hash is checked: kCorrupt where the medium gives other bytes; they are
  // never returned. kNotFound: no such family or chunk.
  Result<std::string> get_chunk(const FamilyName& family, const Hash& hash) const;
  // The same of several, in their order, whose hashes are looked at together;
  // the first that fails fails all.
  Result<std::vector<std::string>> get_chunks(const FamilyName& family,
                                              std::span<const Hash> hashes) const;
  // The chunks that are there and intact. Reads all of them: for resuming a
  // transfer, not for asking often.
  Result<std::vector<Hash>> chunks(const FamilyName& family) const { return do_chunks(family); }
  // Durable on return, gives the space back. kNotFound: no such family.
  Result<void> drop_family(const FamilyName& family);
  // In order of name.
  std::vector<FamilyName> families() const { return do_families(); }
  bool has_family(const FamilyName& family) const;

  // Whether `bytes` more may be written now: kExhausted if not. put_chunk and
  // write ask it themselves.
  virtual Result<void> has_room(std::size_t bytes, bool metadata) const = 0;

  // True once a change has failed: see the failure rule.
  bool failed() const;
  // A change of a file that the store's owner keeps beside it has failed as
  // `error` says, with the same consequence.
  void note_failure(const Error& error);

 private:
  virtual Result<void> do_write(std::span<const Write> batch) = 0;
  virtual Result<std::optional<std::string>> do_get(std::string_view key) const = 0;
  virtual Result<std::vector<Entry>> do_scan(std::string_view prefix) const = 0;
  virtual Result<void> do_create_family(const FamilyName& family) = 0;
  virtual Result<void> do_put_chunk(const FamilyName& family, const Hash& hash,
                                    std::string_view bytes) = 0;
  virtual Result<void> do_flush(const FamilyName& family) = 0;
  // Unverified.
  virtual Result<std::string> do_get_chunk(const FamilyName& family, const Hash& hash) const = 0;
  virtual Result<std::vector<Hash>> do_chunks(const FamilyName& family) const = 0;
  virtual Result<void> do_drop_family(const FamilyName& family) = 0;
  virtual std::vector<FamilyName> do_families() const = 0;

  template <class Change>
  Result<void> change(std::size_t bytes, bool metadata, Change&& apply);

 protected:
  // A simulated restart.
  void clear_failure();

 private:
  mutable std::mutex failure_mutex_;
  std::optional<Error> failure_;
};

}  // namespace skerry::storage
