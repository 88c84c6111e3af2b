// SPDX-License-Identifier: Apache-2.0
#include "base/hash.h"

#include <sodium.h>

#include <algorithm>
#include <cstring>

#include "base/text.h"

namespace skerry {
namespace {

// Without it libsodium hashes by plain C, which takes more than twice the
// instructions. Where it fails, plain C it is.
void choose_for_this_processor() { [[maybe_unused]] static const int kChosen = sodium_init(); }

}  // namespace

std::string Hash::hex() const { return to_hex(raw()); }
std::string Hash::short_hex() const { return hex().substr(0, 12); }
std::string Hash::raw() const { return {bytes.begin(), bytes.end()}; }

Result<Hash> Hash::from_raw(std::string_view raw) {
  if (raw.size() != kBytes)
    return fail(ErrorCode::kInvalid, text("a hash has 32 bytes, found ", raw.size()));
  Hash hash;
  std::copy(raw.begin(), raw.end(), hash.bytes.begin());
  return hash;
}

Result<Hash> Hash::from_hex(std::string_view hex) {
  ASSIGN_OR_RETURN(const std::string raw, skerry::from_hex(hex));
  return from_raw(raw);
}

Hash blake2b(std::string_view bytes) {
  choose_for_this_processor();
  Hash hash;
  crypto_generichash(hash.bytes.data(), Hash::kBytes,
                     reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), nullptr,
                     0);
  return hash;
}

struct Hasher::State {
  crypto_generichash_state state;
};

Hasher::Hasher() : state_(std::make_unique<State>()) {
  choose_for_this_processor();
  crypto_generichash_init(&state_->state, nullptr, 0, Hash::kBytes);
}
Hasher::~Hasher() = default;

void Hasher::update(std::string_view bytes) {
  crypto_generichash_update(&state_->state, reinterpret_cast<const unsigned char*>(bytes.data()),
                            bytes.size());
}

Hash Hasher::finish() {
  Hash hash;
  crypto_generichash_final(&state_->state, hash.bytes.data(), Hash::kBytes);
  return hash;
}

}  // namespace skerry

std::size_t std::hash<skerry::Hash>::operator()(const skerry::Hash& named) const noexcept {
  std::size_t value = 0;
  std::memcpy(&value, named.bytes.data(), sizeof value);
  return value;
}
