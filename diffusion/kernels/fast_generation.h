// SPDX-License-Identifier: Apache-2.0
// The generation of the fast kernels, a part of every fingerprint with them.
#pragma once

namespace skerry::diffusion {

// Raise it whenever a fast kernel, of the CPU or of a card, gives other bits
// than before. The first generation had neither our kernels on a card nor bf16
// between products on the CPU. The third sums other columns of a row first on a
// card, and gradients of biases in fp32.
inline constexpr int kFastGeneration = 3;

}  // namespace skerry::diffusion
