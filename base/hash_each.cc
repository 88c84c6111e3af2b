// SPDX-License-Identifier: Apache-2.0
#include "base/hash_each.h"

#include <cstdint>
#include <cstring>

namespace skerry {
namespace {

#if defined(__x86_64__) && defined(__GNUC__)

// RFC 7693, four instances abreast: lane i of every vector belongs to input i.
// Little-endian words, as this processor's.
#define SKERRY_AVX2 __attribute__((target("avx2")))

constexpr std::size_t kLanes = 4;
constexpr std::size_t kBlock = 128;
constexpr std::uint64_t kInitial[8] = {0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b,
                                       0xa54ff53a5f1d36f1, 0x510e527fade682d1, 0x9b05688c2b3e6c1f,
                                       0x1f83d9abfb41bd6b, 0x5be0cd19137e2179};
constexpr std::uint64_t kParameters = 0x01010000 | Hash::kBytes;  // no key, no tree
constexpr unsigned char kSigma[12][16] = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
                                          {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
                                          {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
                                          {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
                                          {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
                                          {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
                                          {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
                                          {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
                                          {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
                                          {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
                                          {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
                                          {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3}};

using Words = std::uint64_t __attribute__((vector_size(32)));
using Halves = std::uint32_t __attribute__((vector_size(32)));
using Bytes = unsigned char __attribute__((vector_size(32)));

struct Lanes {
  Words chain[8];
  Words counted;  // bytes, with the block that is being taken
  Words last;     // all ones where that block is the input's last
};

SKERRY_AVX2 inline void quarter(Words& a, Words& b, Words& c, Words& d, const Words& x,
                                const Words& y) {
  a += b + x;
  d ^= a;
  // To the right by 32 bits; below by 24, 16 and 63.
  d = (Words)__builtin_shufflevector((Halves)d, (Halves)d, 1, 0, 3, 2, 5, 4, 7, 6);
  c += d;
  b ^= c;
  b = (Words)__builtin_shufflevector((Bytes)b, (Bytes)b, 3, 4, 5, 6, 7, 0, 1, 2, 11, 12, 13, 14, 15,
                                     8, 9, 10, 19, 20, 21, 22, 23, 16, 17, 18, 27, 28, 29, 30, 31,
                                     24, 25, 26);
  a += b + y;
  d ^= a;
  d = (Words)__builtin_shufflevector((Bytes)d, (Bytes)d, 2, 3, 4, 5, 6, 7, 0, 1, 10, 11, 12, 13, 14,
                                     15, 8, 9, 18, 19, 20, 21, 22, 23, 16, 17, 26, 27, 28, 29, 30,
                                     31, 24, 25);
  c += d;
  b ^= c;
  b = (b >> 63) | (b + b);
}

SKERRY_AVX2 inline std::uint64_t word_at(const char* block, std::size_t i) {
  std::uint64_t word;
  std::memcpy(&word, block + i * sizeof word, sizeof word);
  return word;
}

SKERRY_AVX2 void compress(Lanes& lanes, const char* const (&blocks)[kLanes]) {
  Words m[16];
  for (std::size_t i = 0; i < 16; ++i)
    m[i] = Words{word_at(blocks[0], i), word_at(blocks[1], i), word_at(blocks[2], i),
                 word_at(blocks[3], i)};
  Words v[16];
  for (std::size_t i = 0; i < 8; ++i) {
    v[i] = lanes.chain[i];
    v[i + 8] = Words{kInitial[i], kInitial[i], kInitial[i], kInitial[i]};
  }
  v[12] ^= lanes.counted;
  v[14] ^= lanes.last;
#pragma GCC unroll 12
  for (const auto& s : kSigma) {
    quarter(v[0], v[4], v[8], v[12], m[s[0]], m[s[1]]);
    quarter(v[1], v[5], v[9], v[13], m[s[2]], m[s[3]]);
    quarter(v[2], v[6], v[10], v[14], m[s[4]], m[s[5]]);
    quarter(v[3], v[7], v[11], v[15], m[s[6]], m[s[7]]);
    quarter(v[0], v[5], v[10], v[15], m[s[8]], m[s[9]]);
    quarter(v[1], v[6], v[11], v[12], m[s[10]], m[s[11]]);
    quarter(v[2], v[7], v[8], v[13], m[s[12]], m[s[13]]);
    quarter(v[3], v[4], v[9], v[14], m[s[14]], m[s[15]]);
  }
  for (std::size_t i = 0; i < 8; ++i) lanes.chain[i] ^= v[i] ^ v[i + 8];
}

// A lane whose input has ended takes the next one.
SKERRY_AVX2 void hash_in_lanes(std::span<const std::string_view> inputs,
                               std::vector<Hash>& hashes) {
  struct Lane {
    std::size_t input = 0;
    std::string_view rest;
    bool taken = false;
    char padded[kBlock] = {};
  };
  Lane lane[kLanes];
  Lanes lanes{};
  std::size_t next = 0;
  const auto take = [&](std::size_t i) SKERRY_AVX2 {
    lane[i].taken = next < inputs.size();
    if (!lane[i].taken) return;
    lane[i].input = next;
    lane[i].rest = inputs[next++];
    for (std::size_t word = 0; word < 8; ++word) lanes.chain[word][i] = kInitial[word];
    lanes.chain[0][i] ^= kParameters;
    lanes.counted[i] = 0;
  };
  for (std::size_t i = 0; i < kLanes; ++i) take(i);
  for (;;) {
    const char* blocks[kLanes];
    bool any = false;
    for (std::size_t i = 0; i < kLanes; ++i) {
      std::string_view& rest = lane[i].rest;
      any = any || lane[i].taken;
      const bool is_last = rest.size() <= kBlock;
      lanes.last[i] = is_last ? ~std::uint64_t{0} : 0;
      const std::size_t bytes = is_last ? rest.size() : kBlock;
      lanes.counted[i] += bytes;
      blocks[i] = rest.data();
      if (bytes < kBlock) {
        std::memset(lane[i].padded, 0, kBlock);
        if (bytes > 0) std::memcpy(lane[i].padded, rest.data(), bytes);
        blocks[i] = lane[i].padded;
      }
      rest.remove_prefix(bytes);
    }
    if (!any) return;
    compress(lanes, blocks);
    for (std::size_t i = 0; i < kLanes; ++i) {
      if (lanes.last[i] == 0 || !lane[i].taken) continue;
      Hash& hash = hashes[lane[i].input];
      for (std::size_t word = 0; word < Hash::kBytes / 8; ++word) {
        const std::uint64_t value = lanes.chain[word][i];
        std::memcpy(hash.bytes.data() + word * 8, &value, 8);
      }
      take(i);
    }
  }
}

bool has_lanes() {
  static const bool kHas = __builtin_cpu_supports("avx2");
  return kHas;
}

#else

bool has_lanes() { return false; }
void hash_in_lanes(std::span<const std::string_view>, std::vector<Hash>&) {}

#endif

}  // namespace

std::vector<Hash> blake2b_each(std::span<const std::string_view> inputs) {
  std::vector<Hash> hashes(inputs.size());
  if (inputs.size() > 1 && has_lanes()) {
    hash_in_lanes(inputs, hashes);
  } else {
    for (std::size_t i = 0; i < inputs.size(); ++i) hashes[i] = blake2b(inputs[i]);
  }
  return hashes;
}

}  // namespace skerry
