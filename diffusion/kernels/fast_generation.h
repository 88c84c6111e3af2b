// SPDX-License-Identifier: Apache-2.0
// The generation of the fast kernels, a part of every fingerprint with them.
#pragma once

namespace skerry::diffusion {

// Raise it whenever a fast kernel, of the CPU or of a card, gives other bits
// than before. The first generation had neither our kernels on a card nor bf16
// between products on the CPU.
inline constexpr int kFastGeneration = 2;

}  // namespace skerry::diffusion
