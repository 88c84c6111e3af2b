// BLAKE2b-256: the name of every chunk, manifest, node and specification.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace skerry {

struct Hash {
  static constexpr std::size_t kBytes = 32;
  std::array<unsigned char, kBytes> bytes{};

  auto operator<=>(const Hash&) const = default;
  bool is_zero() const { return *this == Hash{}; }
  std::string hex() const;        // 64 lower-case digits
  std::string short_hex() const;  // the first 12, for people
  std::string raw() const;        // the 32 bytes, as protobuf and keys carry them
  static Result<Hash> from_raw(std::string_view raw);
  static Result<Hash> from_hex(std::string_view hex);
};

Hash blake2b(std::string_view bytes);

// Incremental form of the same function. One thread at a time.
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
