// SPDX-License-Identifier: Apache-2.0
// The script that the crash writer follows and the crash test expects:
// checkpoint `number` is a family of 8 chunks and a key.
#pragma once

#include <string>

#include "storage/store.h"

namespace skerry::storage {

inline constexpr unsigned kScriptedChunks = 8;

inline FamilyName scripted_family(unsigned number) {
  return FamilyName("ckpt-" + std::to_string(number));
}
inline std::string scripted_key(unsigned number) { return "manifest/" + std::to_string(number); }
inline std::string scripted_chunk(unsigned number, unsigned chunk) {
  std::string bytes = std::to_string(number) + ":" + std::to_string(chunk) + " ";
  bytes.resize(60'000 + chunk, static_cast<char>('a' + number % 26));
  return bytes;
}

inline Result<void> write_scripted_checkpoint(Store& store, unsigned number) {
  const FamilyName family = scripted_family(number);
  // An earlier process left this family behind without its key.
  if (store.has_family(family)) TRY(store.drop_family(family));
  TRY(store.create_family(family));
  for (unsigned chunk = 0; chunk < kScriptedChunks; ++chunk) {
    const std::string bytes = scripted_chunk(number, chunk);
    TRY(store.put_chunk(family, blake2b(bytes), bytes));
  }
  TRY(store.flush(family));
  TRY(store.write({{scripted_key(number), "committed"}}));
  if (number < 3) return {};
  TRY(store.write({{scripted_key(number - 3), std::nullopt}}));
  return store.drop_family(scripted_family(number - 3));
}

}  // namespace skerry::storage
