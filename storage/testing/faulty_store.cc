// SPDX-License-Identifier: Apache-2.0
#include "storage/testing/faulty_store.h"

#include "base/text.h"

namespace skerry::storage {
namespace {

constexpr std::array<std::string_view, 6> kOperationNames = {
    "write", "put_chunk", "flush", "create_family", "drop_family", "get_chunk"};

}  // namespace

void FaultyStore::fail_at(StoreOperation operation, unsigned nth, ErrorCode code,
                          FailedEffect effect) {
  const std::lock_guard lock(mutex_);
  faults_[static_cast<std::size_t>(operation)] = Fault{nth, code, effect};
}

void FaultyStore::flip_reads(double share, std::uint64_t seed) {
  const std::lock_guard lock(mutex_);
  flips_ = share;
  random_.emplace(Position{.seed = seed, .purpose = Purpose::kSimulation});
}

std::optional<FaultyStore::Fault> FaultyStore::due(StoreOperation operation) const {
  Fault& fault = faults_[static_cast<std::size_t>(operation)];
  if (fault.countdown == 0 || --fault.countdown > 0) return std::nullopt;
  return fault;
}

template <class Apply>
Result<void> FaultyStore::run(StoreOperation operation, Apply&& apply) {
  const std::lock_guard lock(mutex_);
  const std::optional<Fault> fault = due(operation);
  if (!fault) return apply();
  if (fault->effect == FailedEffect::kApplied) TRY(apply());
  return fail(fault->code,
              text("injected failure of ", kOperationNames[static_cast<std::size_t>(operation)]));
}

void FaultyStore::crash(std::uint64_t seed) {
  {
    const std::lock_guard lock(mutex_);
    Stream random(Position{.seed = seed, .purpose = Purpose::kSimulation});
    for (const auto& [family, chunks] : unflushed_) {
      for (const auto& [hash, bytes] : chunks) {
        // What the kernel happened to write before the crash is there
        // afterwards; the rest is gone.
        if (random.below(2) == 0) (void)below_.put_chunk(family, hash, bytes).has_value();
      }
    }
    unflushed_.clear();
    faults_ = {};
  }
  clear_failure();
}

Result<void> FaultyStore::flush_through(const FamilyName& family) {
  const auto pending = unflushed_.extract(family);
  if (!pending.empty()) {
    for (const auto& [hash, bytes] : pending.mapped()) TRY(below_.put_chunk(family, hash, bytes));
  }
  return below_.flush(family);
}

Result<void> FaultyStore::do_write(std::span<const Write> batch) {
  return run(StoreOperation::kWrite,
             [&] { return below_.write(batch, Room::kLast); });  // asked for room already
}

Result<void> FaultyStore::do_create_family(const FamilyName& family) {
  return run(StoreOperation::kCreateFamily, [&] { return below_.create_family(family); });
}

Result<void> FaultyStore::do_put_chunk(const FamilyName& family, const Hash& hash,
                                       std::string_view bytes) {
  return run(StoreOperation::kPutChunk, [&]() -> Result<void> {
    if (!below_.has_family(family)) return fail(ErrorCode::kNotFound, text("no family ", family));
    unflushed_[family].insert_or_assign(hash, std::string(bytes));
    return {};
  });
}

Result<void> FaultyStore::do_flush(const FamilyName& family) {
  return run(StoreOperation::kFlush, [&] { return flush_through(family); });
}

Result<std::string> FaultyStore::do_get_chunk(const FamilyName& family, const Hash& hash) const {
  const std::lock_guard lock(mutex_);
  std::string bytes;
  const auto pending = unflushed_.find(family);
  if (pending != unflushed_.end() && pending->second.contains(hash)) {
    bytes = pending->second.at(hash);
  } else {
    ASSIGN_OR_RETURN(bytes, below_.get_chunk(family, hash));
  }
  const bool is_flipped = flips_ > 0 && random_->uniform() < flips_;
  if (is_flipped || due(StoreOperation::kGetChunk))
    bytes.empty() ? bytes.push_back('x') : void(bytes[bytes.size() / 3] ^= 0x10);
  return bytes;
}

Result<std::vector<Hash>> FaultyStore::do_chunks(const FamilyName& family) const {
  const std::lock_guard lock(mutex_);
  ASSIGN_OR_RETURN(std::vector<Hash> found, below_.chunks(family));
  const auto pending = unflushed_.find(family);
  if (pending == unflushed_.end()) return found;
  std::map<Hash, bool> merged;
  for (const Hash& hash : found) merged[hash] = true;
  for (const auto& [hash, bytes] : pending->second) merged[hash] = blake2b(bytes) == hash;
  found.clear();
  for (const auto& [hash, intact] : merged) {
    if (intact) found.push_back(hash);
  }
  return found;
}

Result<void> FaultyStore::do_drop_family(const FamilyName& family) {
  return run(StoreOperation::kDropFamily, [&] {
    unflushed_.erase(family);
    return below_.drop_family(family);
  });
}

}  // namespace skerry::storage
