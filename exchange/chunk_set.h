// SPDX-License-Identifier: Apache-2.0
// Which chunks of one object somebody has. Chunks count from 1 in the order of
// the manifest, each distinct one once; 0 is the manifest itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace skerry::exchange {

using ChunkIndex = std::uint32_t;

class ChunkSet {
 public:
  bool has(ChunkIndex chunk) const {
    return whole_ || (chunk / 8 < bits_.size() && (bits_[chunk / 8] >> chunk % 8 & 1) != 0);
  }
  void add(ChunkIndex chunk) {
    if (chunk / 8 >= bits_.size()) bits_.resize(chunk / 8 + 1);
    bits_[chunk / 8] = static_cast<char>(bits_[chunk / 8] | 1 << chunk % 8);
  }
  void make_whole() { whole_ = true; }
  bool is_whole() const { return whole_; }
  const std::string& bits() const { return bits_; }  // chunk i: bit i % 8 of byte i / 8

 private:
  std::string bits_;
  bool whole_ = false;
};

}  // namespace skerry::exchange
