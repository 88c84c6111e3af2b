// SPDX-License-Identifier: Apache-2.0
// Part of every fingerprint with fast kernels.
#pragma once

namespace skerry::diffusion {

// Raised whenever a fast kernel, of the CPU or of a card, gives other bits than
// before. The first had neither kernels of ours on a card nor bf16 between
// products on the CPU.
inline constexpr int kFastGeneration = 2;

}  // namespace skerry::diffusion
