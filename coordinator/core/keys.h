// SPDX-License-Identifier: Apache-2.0
// Keys of the coordinator's state in the key-value store. Numbers have 16
// hexadecimal digits, so that keys sort numerically.
#pragma once

#include <cstdint>
#include <string>

#include "base/ids.h"

namespace skerry::coordinator {

inline constexpr char kMetaKey[] = "meta";
inline constexpr char kNodePrefix[] = "node/";
inline constexpr char kTokenPrefix[] = "token/";
inline constexpr char kDatasetPrefix[] = "dataset/";
inline constexpr char kRunPrefix[] = "run/";
inline constexpr char kExpertPrefix[] = "expert/";
inline constexpr char kEventPrefix[] = "event/";
inline constexpr char kDeletedPrefix[] = "deleted/";    // runs, by id
inline constexpr char kRevokedPrefix[] = "revoked/";    // ids that are not in the roster
inline constexpr char kSpeedPrefix[] = "speed/";        // by device and kind
inline constexpr char kSpendingPrefix[] = "spending/";  // runs, by id
inline constexpr char kHistoryPrefix[] = "history/";    // by expert and first number

// In the order that a batch writes them.
enum class Kind {
  kMeta,
  kNode,
  kToken,
  kDataset,
  kRun,
  kDeleted,
  kRevoked,
  kExpert,
  kSpeed,
  kSpending,
  kHistory,
  kEvent
};
inline constexpr const char* kPrefixes[] = {
    kMetaKey,       kNodePrefix,   kTokenPrefix, kDatasetPrefix,  kRunPrefix,     kDeletedPrefix,
    kRevokedPrefix, kExpertPrefix, kSpeedPrefix, kSpendingPrefix, kHistoryPrefix, kEventPrefix};

std::string number_text(std::uint64_t number);
inline std::string id_text(const std::string& id) { return id; }
template <class Tag>
std::string id_text(const StringId<Tag>& id) {
  return id.str();
}
inline std::string id_text(const ExpertId& id) {
  return id.run.str() + '/' + number_text(id.index);
}
inline std::string id_text(std::uint64_t number) { return number_text(number); }
inline std::string expert_key(const ExpertId& id) { return kExpertPrefix + id_text(id); }
template <class Id>
std::string key_of(Kind kind, const Id& id) {
  return kPrefixes[static_cast<std::size_t>(kind)] + id_text(id);
}

}  // namespace skerry::coordinator
