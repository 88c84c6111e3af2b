// SPDX-License-Identifier: Apache-2.0
// The captions of a dataset as experts train on them: tokens of a text encoder,
// each distinct caption once. They lie in a scratch file, so that memory holds
// only an entry for each distinct caption.
// Does not include LibTorch.
// THREADS: one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "diffusion/data/caption_embeddings.h"

namespace skerry::diffusion {

class Captions {
 public:
  // Takes the caption of each image from the row `places[image]`.
  // ON FAILURE: kInvalid names the sample; kExhausted: the disk is full.
  static Result<Captions> import(const CaptionEmbeddings& embeddings,
                                 std::span<const std::uint32_t> places,
                                 const std::string& scratch_folder);

  std::uint64_t dim() const;
  std::uint64_t longest() const;      // tokens
  std::uint64_t uncaptioned() const;  // images with the null caption
  std::uint64_t distinct() const;     // beside the null caption
  // RETURNS: of images, the mean bytes of their tokens.
  double bytes_a_sample() const;

  // Writes the distinct captions of these images to a file:
  //   - tokens F16 [T, dim], of all captions, one after the other;
  //   - begin I64 [C + 1]: caption c has the tokens from begin[c] to
  //     begin[c + 1];
  //   - hash U8 [C, 32]: BLAKE2b of each caption's tokens.
  //
  // Caption 0 is the null caption; others follow in order of first use.
  // RETURNS: the caption of each image, as a row of that file.
  Result<std::vector<std::int32_t>> write(const std::string& path,
                                          std::span<const std::uint32_t> images) const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace skerry::diffusion
