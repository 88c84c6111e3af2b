// SPDX-License-Identifier: Apache-2.0
// Encodes the distinct captions of a dataset: to tokens, then in batches of
// equal length, so that no token is padding. Does not include LibTorch.
// THREADS: one.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "diffusion/data/captions.h"
#include "diffusion/formats/kept_batches.h"
#include "diffusion/formats/progress.h"
#include "diffusion/formats/text_encoder.h"

namespace skerry::diffusion {

// RETURNS: the ids of each text, the token of the end last.
using Tokenize =
    std::function<Result<std::vector<std::vector<std::int32_t>>>(std::span<const std::string>)>;

// RETURNS: at most `longest` ids, the last of which ends the caption.
// REQUIRES: ids is not empty.
std::vector<std::int32_t> cut_caption(std::span<const std::int32_t> ids, std::uint32_t longest);

// RETURNS: [ids.size(), dim] in F16, of captions of equal length.
// `texts`: the captions, for messages.
// ON FAILURE: kInvalid names a caption with a number that is not finite, or is
// beyond F16. kExhausted: out of memory.
Result<std::vector<std::uint16_t>> encode_halves(std::span<const std::int32_t> ids,
                                                 const std::vector<std::string_view>& texts,
                                                 TextEncoder& encoder);

struct EncodedCaptions {
  Captions captions;
  std::uint64_t cut = 0;      // distinct captions that were longer than `longest`
  std::uint64_t resumed = 0;  // distinct captions that were not encoded again
};

// `texts`: distinct captions, the first one empty: the null caption.
// `caption_of`: of each image, an index into `texts`. A caption of more than
// `longest` tokens is cut, and ends as others do. `key` names all that the
// encoder's output depends on beside the tokens.
// ON FAILURE: kInvalid: a number is not finite, or beyond F16; the message
// names the caption. kExhausted: out of memory, or the disk is full.
// REQUIRES: longest ≥ 2.
Result<EncodedCaptions> encode_captions(const std::vector<std::string>& texts,
                                        std::span<const std::uint32_t> caption_of,
                                        std::uint32_t longest, const Tokenize& tokenize,
                                        TextEncoder& encoder, const Hash& key, KeptBatches& kept,
                                        const std::string& scratch_folder,
                                        const ProgressFn& progress);

}  // namespace skerry::diffusion
