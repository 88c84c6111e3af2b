// SPDX-License-Identifier: Apache-2.0
// What an ensemble that was trained on captions draws: prompts, encoded here or
// by another program. Does not include LibTorch.
// THREADS: any.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "diffusion/data/encode_captions.h"
#include "diffusion/sample/ensemble_index.h"
#include "diffusion/sample/sample.h"

namespace skerry::diffusion {

// F16 tokens of each prompt, and of the null caption. Empty for an ensemble
// without captions.
struct Prompts {
  std::vector<std::vector<std::uint16_t>> tokens;
  std::vector<std::uint16_t> null;

  // RETURNS: what image `image` is drawn by: the prompts in turn.
  // REQUIRES: there is a prompt.
  std::string_view of(std::size_t image) const;
};

// Reads or encodes the prompts of `spec`. A prompt of more than kDefaultLongest
// tokens is cut, and logged.
// ON FAILURE: kInvalid: the ensemble takes no prompts, or needs some. Also if
// the encoder has another width than the one that it was trained with.
Result<Prompts> read_prompts(const SampleSpec& spec, const EnsembleIndex& index);

// `prompts`: as a person wrote them; they are cleaned as captions are.
Result<Prompts> encode_prompts(const std::vector<std::string>& prompts, std::uint32_t longest,
                               const Tokenize& tokenize, TextEncoder& encoder);

}  // namespace skerry::diffusion
