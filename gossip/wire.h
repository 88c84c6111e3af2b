// SPDX-License-Identifier: Apache-2.0
// Converts heads and fingerprints between messages and values.
#pragma once

#include <array>
#include <string>

#include "gossip/record.h"
#include "protocol/limits.h"

namespace skerry::gossip {

// A version as messages carry it: the stamp stands for the hash.
struct Head {
  Position position = 0;
  std::uint64_t incarnation = 0;
  std::uint64_t counter = 0;
  std::uint64_t stamp = 0;
};

inline void add_head(pb::HeadList& heads, const Record& record) {
  heads.add_position(record.position);
  heads.add_incarnation(record.version.incarnation);
  heads.add_counter(record.version.counter);
  heads.add_stamp(record.version.stamp());
}

// REQUIRES: `heads` was validated, 0 ≤ i < its length.
inline Head head_at(const pb::HeadList& heads, int i) {
  return {heads.position(i), heads.incarnation(i), heads.counter(i), heads.stamp(i)};
}

using Fingerprints = std::array<std::uint64_t, protocol::kGossipBuckets>;

inline std::string encode_fingerprints(const Fingerprints& fingerprints) {
  std::string bytes;
  bytes.reserve(8 * fingerprints.size());
  for (const std::uint64_t each : fingerprints) {
    for (int shift = 0; shift < 64; shift += 8) bytes.push_back(static_cast<char>(each >> shift));
  }
  return bytes;
}

// REQUIRES: `bytes` was validated.
inline Fingerprints decode_fingerprints(const std::string& bytes) {
  Fingerprints fingerprints{};
  for (std::size_t i = 0; i < 8 * fingerprints.size(); ++i) {
    fingerprints[i / 8] |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (i % 8 * 8);
  }
  return fingerprints;
}

}  // namespace skerry::gossip
