// SPDX-License-Identifier: Apache-2.0
#include "storage/store.h"

#include <algorithm>

#include "base/hash_each.h"
#include "base/text.h"

namespace skerry::storage {
namespace {

bool is_family_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

Result<void> check_name(const FamilyName& family) {
  const std::string& name = family.str();
  const bool fits = !name.empty() && name.size() <= kMaxFamilyNameBytes && name != "default" &&
                    std::all_of(name.begin(), name.end(), is_family_character);
  if (!fits)
    return fail(ErrorCode::kInvalid, text("\"", name, "\" cannot name a family of chunks"));
  return {};
}

// Errors of the request itself: the store changed nothing, so nothing failed.
bool is_refusal(ErrorCode code) {
  return code == ErrorCode::kInvalid || code == ErrorCode::kNotFound ||
         code == ErrorCode::kConflict;
}

}  // namespace

Result<void> check_hashes(std::span<const std::string_view> chunks, std::span<const Hash> hashes,
                          std::string_view of) {
  const std::vector<Hash> found = blake2b_each(chunks);
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i] == hashes[i]) continue;
    return fail(ErrorCode::kCorrupt,
                text("chunk ", hashes[i].short_hex(), " of ", of, " is damaged on disk"));
  }
  return {};
}

template <class Change>
Result<void> Store::change(std::size_t bytes, bool metadata, Change&& apply) {
  {
    const std::lock_guard lock(failure_mutex_);
    if (failure_) {
      return fail(failure_->code, "storage failed earlier and takes no changes until a restart: " +
                                      failure_->message);
    }
  }
  if (bytes > 0) TRY(has_room(bytes, metadata));
  Result<void> outcome = apply();
  if (!outcome && !is_refusal(outcome.error().code)) note_failure(outcome.error());
  return outcome;
}

Result<void> Store::write(std::span<const Write> batch, Room room) {
  std::size_t bytes = 0;
  for (const Write& each : batch) {
    if (each.key.empty() || each.key.size() > kMaxKeyBytes) {
      return fail(ErrorCode::kInvalid,
                  text("a key of ", each.key.size(), " bytes; 1 … ", kMaxKeyBytes, " are allowed"));
    }
    // Removal makes room, so it must work on a full disk.
    if (each.value && room == Room::kAsked) bytes += each.key.size() + each.value->size();
  }
  return change(bytes, true, [&] { return do_write(batch); });
}

Result<void> Store::create_family(const FamilyName& family) {
  TRY(check_name(family));
  return change(1, true, [&] { return do_create_family(family); });
}

Result<void> Store::put_chunk(const FamilyName& family, const Hash& hash, std::string_view bytes) {
  if (bytes.size() > kMaxChunkBytes) {
    return fail(ErrorCode::kInvalid, text("a chunk of ", bytes.size(), " bytes; at most ",
                                          kMaxChunkBytes, " are allowed"));
  }
  return change(std::max<std::size_t>(bytes.size(), 1), false,
                [&] { return do_put_chunk(family, hash, bytes); });
}

Result<void> Store::flush(const FamilyName& family) {
  return change(0, false, [&] { return do_flush(family); });
}

Result<std::string> Store::get_chunk(const FamilyName& family, const Hash& hash) const {
  ASSIGN_OR_RETURN(std::vector<std::string> bytes, get_chunks(family, {&hash, 1}));
  return std::move(bytes.front());
}

Result<std::vector<std::string>> Store::get_chunks(const FamilyName& family,
                                                   std::span<const Hash> hashes) const {
  std::vector<std::string> chunks;
  for (const Hash& hash : hashes) {
    ASSIGN_OR_RETURN(std::string bytes, do_get_chunk(family, hash));
    chunks.push_back(std::move(bytes));
  }
  TRY(check_hashes(std::vector<std::string_view>(chunks.begin(), chunks.end()), hashes,
                   family.str()));
  return chunks;
}

Result<void> Store::drop_family(const FamilyName& family) {
  return change(0, true, [&] { return do_drop_family(family); });
}

bool Store::has_family(const FamilyName& family) const {
  const std::vector<FamilyName> all = families();
  return std::find(all.begin(), all.end(), family) != all.end();
}

bool Store::failed() const {
  const std::lock_guard lock(failure_mutex_);
  return failure_.has_value();
}

void Store::note_failure(const Error& error) {
  const std::lock_guard lock(failure_mutex_);
  if (!failure_) failure_ = error;
}

void Store::clear_failure() {
  const std::lock_guard lock(failure_mutex_);
  failure_.reset();
}

}  // namespace skerry::storage
