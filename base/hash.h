// SPDX-License-Identifier: Apache-2.0
// BLAKE2b-256, the hash that names every chunk, manifest, node and
// specification.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace skerry {

struct Hash {
  static constexpr std::size_t kBytes = 32;
  std::array<unsigned char, kBytes> bytes{};

  bool operator==(const Hash&) const = default;
  // The order of the bytes. Most hashes differ within the first eight bytes,
  // which need no call.
  std::strong_ordering operator<=>(const Hash& other) const {
    if (const auto by_first = first_word() <=> other.first_word(); by_first != 0) return by_first;
    return bytes <=> other.bytes;
  }
  // The first eight bytes as a number, in the order of hashes.
  std::uint64_t first_word() const {
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < sizeof word; ++i) word = word << 8 | bytes[i];
    return word;
  }
  bool is_zero() const { return *this == Hash{}; }
  std::string hex() const;        // 64 lower-case digits
  std::string short_hex() const;  // the first 12, for people
  std::string raw() const;        // the 32 bytes, as protobuf and keys carry them
  std::string_view view() const { return {reinterpret_cast<const char*>(bytes.data()), kBytes}; }
  static Result<Hash> from_raw(std::string_view raw);
  static Result<Hash> from_hex(std::string_view hex);
};

Hash blake2b(std::string_view bytes);

// Incremental form of the same function. THREADS: one at a time.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;
  void update(std::string_view bytes);
  Hash finish();  // once

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace skerry

template <>
struct std::hash<skerry::Hash> {
  std::size_t operator()(const skerry::Hash& named) const noexcept;
};
