// SPDX-License-Identifier: Apache-2.0
// The store in memory, for tests and simulations. Everything is durable at
// once: faulty_store.h adds crashes.
#pragma once

#include <functional>
#include <map>

#include "storage/store.h"

namespace skerry::storage {

class MemoryStore : public Store {
 public:
  MemoryStore() = default;
  // Holds at most this many bytes of chunks and values; further changes fail
  // with kExhausted.
  explicit MemoryStore(std::size_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}
  void set_capacity(std::size_t bytes);
  Result<void> has_room(std::size_t bytes, bool metadata) const override;
  // Changes a stored chunk silently, as a failing disk does.
  // REQUIRES: it is there and not empty.
  void damage_chunk(const FamilyName& family, const Hash& hash);
  // Replaces the content with a copy of `other`'s.
  void copy_from(const MemoryStore& other);

 protected:
  // A simulation looks at what is written.
  Result<void> do_write(std::span<const Write> batch) override;

 private:
  using Chunks = std::map<Hash, std::string>;

  Result<std::optional<std::string>> do_get(std::string_view key) const override;
  Result<std::vector<Entry>> do_scan(std::string_view prefix) const override;
  Result<void> do_create_family(const FamilyName& family) override;
  Result<void> do_put_chunk(const FamilyName& family, const Hash& hash,
                            std::string_view bytes) override;
  Result<void> do_flush(const FamilyName& family) override;
  Result<std::string> do_get_chunk(const FamilyName& family, const Hash& hash) const override;
  Result<std::vector<Hash>> do_chunks(const FamilyName& family) const override;
  Result<void> do_drop_family(const FamilyName& family) override;
  std::vector<FamilyName> do_families() const override;

  mutable std::mutex mutex_;
  std::size_t capacity_bytes_ = SIZE_MAX;
  std::size_t used_bytes_ = 0;
  std::map<std::string, std::string, std::less<>> metadata_;
  std::map<FamilyName, Chunks> families_;
};

}  // namespace skerry::storage
