// SPDX-License-Identifier: Apache-2.0
// Embeddings of captions that another program computed, in a .safetensors file:
//   - embeddings [N, L, D], F16, BF16 or F32: the tokens of each sample;
//   - mask [N, L], U8, BOOL, I32 or I64: nonzero keeps a token;
//   - null [n, D], as embeddings: the caption of an image without one.
//
// Does not include LibTorch.
// ON FAILURE: every error names the file.
// THREADS: any; immutable after open().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "storage/safetensors.h"

namespace skerry::diffusion {

class CaptionEmbeddings {
 public:
  // ON FAILURE: kInvalid: a tensor is missing, or has another shape or type; or
  // the mask keeps nothing at all.
  static Result<CaptionEmbeddings> open(const std::string& path);
  std::uint64_t samples() const { return samples_; }
  std::uint64_t dim() const { return dim_; }
  // RETURNS: the tokens that the mask keeps, [tokens, D] in F16; none: the
  // sample has no caption.
  // REQUIRES: sample < samples().
  // ON FAILURE: kInvalid names the sample: a number is not finite, or beyond
  // F16.
  Result<std::vector<std::uint16_t>> tokens_of(std::uint64_t sample) const;
  Result<std::vector<std::uint16_t>> null() const;

 private:
  Result<std::vector<std::uint16_t>> halves(const storage::TensorInfo& tensor, std::uint64_t first,
                                            std::uint64_t count, const std::string& owner) const;
  bool keeps(std::uint64_t at) const;

  std::string path_;
  storage::Safetensors file_;
  storage::TensorInfo embeddings_, mask_, null_;
  std::uint64_t samples_ = 0, longest_ = 0, dim_ = 0;
};

}  // namespace skerry::diffusion
