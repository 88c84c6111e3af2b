// SPDX-License-Identifier: Apache-2.0
// The Store seam: durable metadata and families of chunks. Metadata is small,
// atomic and synced. The chunks of a family are written in any order, flushed
// once and dropped together. A checkpoint is a family; its manifest, a metadata
// key, is the commit marker.
//
// THREADS: any, for every method; methods block on the disk.
// ON FAILURE: after a failed write, flush, create or drop the outcome is
// unknown and failed() is true. Every later change fails with the first error.
// The process must end and recover at its next start, since a retried fsync can
// falsely succeed.
// One exception: kExhausted with failed() still false. The store found too
// little free space and changed nothing; retry when there is room.
// Reads work in either case.
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
// checkpoint attempt that fills it: run, expert, step, epoch, attempt. Never
// name it by (expert, round) alone: two epochs can produce the same round.
using FamilyName = StringId<struct FamilyTag>;

struct Write {
  std::string key;
  std::optional<std::string> value;  // nothing: removes the key
};

enum class Room { kAsked, kLast };

struct Entry {
  std::string key;
  std::string value;
  auto operator<=>(const Entry&) const = default;
};

// Checks each chunk against its hash.
// ON FAILURE: kCorrupt names the first bad one, and the object that it is a
// chunk `of`.
Result<void> check_hashes(std::span<const std::string_view> chunks, std::span<const Hash> hashes,
                          std::string_view of);

class Store {
 public:
  virtual ~Store() = default;

  // ---- Metadata ----
  // Writes all of the batch or nothing, durable on return. A later write of the
  // batch overrides an earlier one of the same key. A batch that only removes,
  // or that helps to make room (Room::kLast), skips the check for free space.
  // ON FAILURE: kInvalid: an empty or overlong key.
  Result<void> write(std::span<const Write> batch, Room room = Room::kAsked);
  Result<void> write(std::initializer_list<Write> batch) {
    return write(std::span(batch.begin(), batch.size()));
  }
  // RETURNS: nothing if the key is missing.
  // ON FAILURE: kCorrupt: the medium is damaged.
  Result<std::optional<std::string>> get(std::string_view key) const { return do_get(key); }
  // RETURNS: every entry whose key begins with prefix, in order of key.
  Result<std::vector<Entry>> scan(std::string_view prefix) const { return do_scan(prefix); }

  // ---- Families of chunks ----
  // Creates a family, durable on return.
  // ON FAILURE: kConflict: it exists. kInvalid: not a family's name.
  Result<void> create_family(const FamilyName& family);
  // Adds a chunk, readable on return and durable after the next flush of its
  // family. A repeated put of the same chunk is allowed.
  // REQUIRES: the receiver has checked that blake2b(bytes) == hash.
  // ON FAILURE: kNotFound: no such family. kInvalid: over kMaxChunkBytes.
  Result<void> put_chunk(const FamilyName& family, const Hash& hash, std::string_view bytes);
  // Makes every chunk put before this call survive a crash.
  // ON FAILURE: kNotFound: no such family.
  Result<void> flush(const FamilyName& family);
  // RETURNS: the chunk; checks its hash.
  // ON FAILURE: kCorrupt if the medium returns other bytes; the caller never
  // gets them. kNotFound: no such family or chunk.
  Result<std::string> get_chunk(const FamilyName& family, const Hash& hash) const;
  // RETURNS: several chunks, in order; checks their hashes together. Fails if
  // one fails.
  Result<std::vector<std::string>> get_chunks(const FamilyName& family,
                                              std::span<const Hash> hashes) const;
  // RETURNS: the intact chunks. Reads all of them, so call it to resume a
  // transfer only.
  Result<std::vector<Hash>> chunks(const FamilyName& family) const { return do_chunks(family); }
  // Drops the family, durable on return, and frees its space.
  // ON FAILURE: kNotFound: no such family.
  Result<void> drop_family(const FamilyName& family);
  // In order of name.
  std::vector<FamilyName> families() const { return do_families(); }
  bool has_family(const FamilyName& family) const;

  // Checks that there is room for `bytes` more. put_chunk() and write() call it
  // themselves.
  // ON FAILURE: kExhausted.
  virtual Result<void> has_room(std::size_t bytes, bool metadata) const = 0;

  // RETURNS: true once a change has failed; see ON FAILURE at the top.
  bool failed() const;
  // Reports that a change of a file beside the store failed with `error`. The
  // consequence is the same as of a failed change here.
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
