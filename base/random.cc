// SPDX-License-Identifier: Apache-2.0
#include "base/random.h"

#include <cmath>
#include <numbers>

namespace skerry {

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key) {
  constexpr std::uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = kMultiplier0 * counter[0];
    const std::uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<std::uint32_t>(product0)};
    key = {key[0] + kWeyl0, key[1] + kWeyl1};
  }
  return counter;
}

// The key mixes (seed, expert, attempt, purpose) through the generator itself.
// Mere addition could give two positions of a run the same key. The counter
// takes (step, sample) and leaves one word to count blocks.
Stream::Stream(const Position& position) {
  const auto seed_low = static_cast<std::uint32_t>(position.seed);
  const auto seed_high = static_cast<std::uint32_t>(position.seed >> 32);
  const auto mixed = philox4x32(
      {position.expert, position.attempt, static_cast<std::uint32_t>(position.purpose), 0x736b6572},
      {seed_low, seed_high});
  key_ = {mixed[0], mixed[1]};
  counter_ = {0, position.sample, static_cast<std::uint32_t>(position.step),
              static_cast<std::uint32_t>(position.step >> 32)};
}

std::uint32_t Stream::u32() {
  if (used_ == 4) {
    block_ = philox4x32(counter_, key_);
    ++counter_[0];
    used_ = 0;
  }
  return block_[used_++];
}

std::uint64_t Stream::u64() {
  const std::uint64_t low = u32();
  return low | static_cast<std::uint64_t>(u32()) << 32;
}

double Stream::uniform() { return static_cast<double>(u64() >> 11) * 0x1p-53; }

std::uint64_t Stream::below(std::uint64_t bound) {
  const std::uint64_t limit = UINT64_MAX - UINT64_MAX % bound;
  std::uint64_t value = u64();
  while (value >= limit) value = u64();
  return value % bound;
}

float Stream::normal() {
  if (has_spare_) {
    has_spare_ = false;
    return spare_;
  }
  // (0, 1] for the logarithm.
  const float u = (static_cast<float>(u32() >> 8) + 1.0F) * 0x1p-24F;
  const float v = static_cast<float>(u32() >> 8) * 0x1p-24F;
  const float radius = std::sqrt(-2.0F * std::log(u));
  const float angle = 2.0F * std::numbers::pi_v<float> * v;
  spare_ = radius * std::sin(angle);
  has_spare_ = true;
  return radius * std::cos(angle);
}

void Stream::fill_normal(std::span<float> out) {
  for (float& value : out) value = normal();
}

}  // namespace skerry
