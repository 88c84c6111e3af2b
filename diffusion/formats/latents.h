// SPDX-License-Identifier: Apache-2.0
// Reads latents that the encoder of an autoencoder made beforehand. The bytes
// come from outside: sizes are bounded, and no read goes beyond them. Plain
// values, no state.
// THREADS: any.
// ON FAILURE: kCorrupt for bytes that break the format, kInvalid for an array
// that is no latents. Both say what was expected and found.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "diffusion/formats/npy.h"

namespace skerry::diffusion {

constexpr std::uint64_t kMaxLatentChannels = 64;
constexpr int kMinLatentSize = 4;
constexpr int kMaxLatentSize = 1024;

// The scaling of latents for training, as diffusers defines it: z' = (z −
// shift) · scale. Decoding reverses it.
struct LatentScaling {
  double scale = 1;
  double shift = 0;
  bool operator==(const LatentScaling&) const = default;
};
// ON FAILURE: kInvalid: not finite, or a scale that is not above 0.
Result<void> validate(const LatentScaling& scaling);

struct Latent {
  int channels = 0;
  int size = 0;               // of both sides
  std::vector<float> values;  // [channels, size, size]
};

// Many latents, one after the other. A view into the array's bytes.
struct LatentBlock {
  std::uint64_t count = 0;
  int channels = 0;
  int size = 0;
  std::size_t number_bytes = 4;
  std::string_view data;
  Latent at(std::uint64_t index) const;  // REQUIRES: index < count
};

// Takes floats [N,C,S,S], or [C,S,S], which is one latent.
Result<LatentBlock> latents_of(const NumberArray& array);
// RETURNS: class numbers from whole numbers [count], −1 for none.
Result<std::vector<std::int32_t>> labels_of(const NumberArray& array, std::uint64_t count);

}  // namespace skerry::diffusion
