// SPDX-License-Identifier: Apache-2.0
// Converts IEEE 754's binary16, the form of latents in a dataset, from and to
// float. Plain values, no state.
// THREADS: any.
#pragma once

#include <bit>
#include <cstdint>

namespace skerry::diffusion {

// Exact: every half is a float.
inline float from_half(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000U) << 16, rest = half & 0x7fffU;
  if (rest >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000U | (rest & 0x3ffU) << 13);
  if (rest < 0x400) return (sign == 0 ? 0x1p-24F : -0x1p-24F) * static_cast<float>(rest);
  return std::bit_cast<float>(sign | ((rest << 13) + 0x38000000U));
}

// RETURNS: the nearest half, the even one on a tie. A value that rounds beyond
// 65504 becomes infinite.
inline std::uint16_t to_half(float value) {
  constexpr std::uint32_t kInfinity = 0x7f800000, kBeyond = 0x477ff000, kLeastNormal = 0x38800000;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000U, rest = bits & 0x7fffffffU;
  const auto with_sign = [sign](std::uint32_t half) {
    return static_cast<std::uint16_t>(sign | half);
  };
  if (rest > kInfinity) return with_sign(0x7e00);
  if (rest >= kBeyond) return with_sign(0x7c00);
  // Floats from 0.5 on have the spacing of the smallest halves, so the sum
  // rounds as a half does.
  if (rest < kLeastNormal)
    return with_sign(std::bit_cast<std::uint32_t>(std::bit_cast<float>(rest) + 0.5F) - 0x3f000000U);
  return with_sign((rest - 0x38000000U + 0xfffU + (rest >> 13 & 1U)) >> 13);
}

}  // namespace skerry::diffusion
