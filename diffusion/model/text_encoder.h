// SPDX-License-Identifier: Apache-2.0
// T5's encoder as a TextEncoder. Does not include LibTorch.
#pragma once

#include <memory>

#include "base/hash.h"
#include "base/result.h"
#include "diffusion/formats/text_encoder.h"
#include "diffusion/model/text_encoder_config.h"

namespace skerry::diffusion {

struct OpenedTextEncoder {
  std::unique_ptr<TextEncoder> encoder;
  // A hash of the config, the values of all weights, and the tokenizer. Other
  // files of the same values have the same.
  Hash identity;
};

// Reads the weights. Computes in fp32 on the CPU and in bf16 on a card, never
// in fp16: T5's values leave its range.
// `device`, `threads`: as open_device().
Result<OpenedTextEncoder> open_text_encoder(const TextEncoderFiles& files, int device,
                                            std::uint32_t threads);

}  // namespace skerry::diffusion
