// SPDX-License-Identifier: Apache-2.0
#include "storage/testing/memory_store.h"

#include "base/check.h"
#include "base/text.h"

namespace skerry::storage {
namespace {

Error no_family(const FamilyName& family) {
  return fail(ErrorCode::kNotFound, text("no family ", family));
}

}  // namespace

void MemoryStore::set_capacity(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  capacity_bytes_ = bytes;
}

void MemoryStore::copy_from(const MemoryStore& other) {
  const std::scoped_lock lock(mutex_, other.mutex_);
  used_bytes_ = other.used_bytes_;
  metadata_ = other.metadata_;
  families_ = other.families_;
}

void MemoryStore::damage_chunk(const FamilyName& family, const Hash& hash) {
  const std::lock_guard lock(mutex_);
  std::string& bytes = families_.at(family).at(hash);
  SKERRY_CHECK(!bytes.empty(), "an empty chunk cannot be damaged");
  bytes[bytes.size() / 2] ^= 1;
}

Result<void> MemoryStore::do_write(std::span<const Write> batch) {
  const std::lock_guard lock(mutex_);
  for (const Write& each : batch) {
    if (const auto old = metadata_.find(each.key); old != metadata_.end()) {
      used_bytes_ -= old->first.size() + old->second.size();
      metadata_.erase(old);
    }
    if (!each.value) continue;
    metadata_[each.key] = *each.value;
    used_bytes_ += each.key.size() + each.value->size();
  }
  return {};
}

Result<std::optional<std::string>> MemoryStore::do_get(std::string_view key) const {
  const std::lock_guard lock(mutex_);
  const auto found = metadata_.find(key);
  if (found == metadata_.end()) return std::optional<std::string>();
  return std::optional(found->second);
}

Result<std::vector<Entry>> MemoryStore::do_scan(std::string_view prefix) const {
  const std::lock_guard lock(mutex_);
  std::vector<Entry> entries;
  for (auto at = metadata_.lower_bound(prefix);
       at != metadata_.end() && at->first.starts_with(prefix); ++at) {
    entries.push_back({at->first, at->second});
  }
  return entries;
}

Result<void> MemoryStore::do_create_family(const FamilyName& family) {
  const std::lock_guard lock(mutex_);
  if (!families_.try_emplace(family).second)
    return fail(ErrorCode::kConflict, text("family ", family, " exists"));
  return {};
}

Result<void> MemoryStore::do_put_chunk(const FamilyName& family, const Hash& hash,
                                       std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = families_.find(family);
  if (found == families_.end()) return no_family(family);
  if (found->second.insert_or_assign(hash, std::string(bytes)).second) used_bytes_ += bytes.size();
  return {};
}

Result<void> MemoryStore::do_flush(const FamilyName& family) {
  const std::lock_guard lock(mutex_);
  if (!families_.contains(family)) return no_family(family);
  return {};
}

Result<std::string> MemoryStore::do_get_chunk(const FamilyName& family, const Hash& hash) const {
  const std::lock_guard lock(mutex_);
  const auto found = families_.find(family);
  if (found == families_.end()) return no_family(family);
  const auto chunk = found->second.find(hash);
  if (chunk == found->second.end()) {
    return fail(ErrorCode::kNotFound, text("no chunk ", hash.short_hex(), " in ", family));
  }
  return chunk->second;
}

Result<std::vector<Hash>> MemoryStore::do_chunks(const FamilyName& family) const {
  const std::lock_guard lock(mutex_);
  const auto found = families_.find(family);
  if (found == families_.end()) return no_family(family);
  std::vector<Hash> intact;
  for (const auto& [hash, bytes] : found->second) {
    if (blake2b(bytes) == hash) intact.push_back(hash);
  }
  return intact;
}

Result<void> MemoryStore::do_drop_family(const FamilyName& family) {
  const std::lock_guard lock(mutex_);
  const auto found = families_.find(family);
  if (found == families_.end()) return no_family(family);
  for (const auto& [hash, bytes] : found->second) used_bytes_ -= bytes.size();
  families_.erase(found);
  return {};
}

std::vector<FamilyName> MemoryStore::do_families() const {
  const std::lock_guard lock(mutex_);
  std::vector<FamilyName> names;
  for (const auto& [name, chunks] : families_) names.push_back(name);
  return names;
}

Result<void> MemoryStore::has_room(std::size_t bytes, bool) const {
  const std::lock_guard lock(mutex_);
  if (bytes <= capacity_bytes_ && used_bytes_ <= capacity_bytes_ - bytes) return {};
  return fail(ErrorCode::kExhausted,
              text("memory store is full (", used_bytes_, " of ", capacity_bytes_, " bytes)"));
}

}  // namespace skerry::storage
