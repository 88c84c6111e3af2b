// SPDX-License-Identifier: Apache-2.0
// A store that fails as disks do, over another store. It fails chosen
// operations, flips bits on reads, and at a crash loses unflushed chunks.
// Deterministic.
#pragma once

#include <array>
#include <map>
#include <optional>

#include "base/random.h"
#include "storage/store.h"

namespace skerry::storage {

enum class StoreOperation { kWrite, kPutChunk, kFlush, kCreateFamily, kDropFamily, kGetChunk };
// Whether a failed operation took effect all the same. Both happen, and callers
// must handle either.
enum class FailedEffect { kNone, kApplied };

class FaultyStore final : public Store {
 public:
  // LIFETIME: `below` outlives this. It holds the durable state and survives
  // crashes.
  explicit FaultyStore(Store& below) : below_(below) {}

  // Makes the nth call of `operation` from here on fail (1: the next one). A
  // failed kGetChunk returns damaged bytes, which the seam must catch.
  void fail_at(StoreOperation operation, unsigned nth, ErrorCode code = ErrorCode::kIo,
               FailedEffect effect = FailedEffect::kNone);
  // From here on, this share of chunks is read with a wrong byte; the store
  // stays intact.
  void flip_reads(double share, std::uint64_t seed);
  // Crashes and restarts the machine. `seed` draws which unflushed chunks are
  // lost; the store accepts changes again.
  void crash(std::uint64_t seed);

  Result<void> has_room(std::size_t bytes, bool metadata) const override {
    return below_.has_room(bytes, metadata);
  }

 private:
  struct Fault {
    unsigned countdown = 0;  // 0: none set
    ErrorCode code = ErrorCode::kIo;
    FailedEffect effect = FailedEffect::kNone;
  };
  using Chunks = std::map<Hash, std::string>;

  std::optional<Fault> due(StoreOperation operation) const;
  template <class Apply>
  Result<void> run(StoreOperation operation, Apply&& apply);
  Result<void> flush_through(const FamilyName& family);

  Result<void> do_write(std::span<const Write> batch) override;
  Result<std::optional<std::string>> do_get(std::string_view key) const override {
    return below_.get(key);
  }
  Result<std::vector<Entry>> do_scan(std::string_view prefix) const override {
    return below_.scan(prefix);
  }
  Result<void> do_create_family(const FamilyName& family) override;
  Result<void> do_put_chunk(const FamilyName& family, const Hash& hash,
                            std::string_view bytes) override;
  Result<void> do_flush(const FamilyName& family) override;
  Result<std::string> do_get_chunk(const FamilyName& family, const Hash& hash) const override;
  Result<std::vector<Hash>> do_chunks(const FamilyName& family) const override;
  Result<void> do_drop_family(const FamilyName& family) override;
  std::vector<FamilyName> do_families() const override { return below_.families(); }

  Store& below_;
  mutable std::mutex mutex_;
  mutable std::array<Fault, 6> faults_;
  double flips_ = 0;
  mutable std::optional<Stream> random_;
  std::map<FamilyName, Chunks> unflushed_;
};

}  // namespace skerry::storage
