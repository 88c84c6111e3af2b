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
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "diffusion/data/caption_embeddings.h"

namespace skerry::diffusion {

class Captions {
 public:
  class Builder;
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

  // RETURNS: the caption of an image; 0: the null caption.
  std::uint32_t number_of(std::uint32_t image) const;
  // RETURNS: a caption's tokens F16 [L, dim].
  std::string_view tokens_of(std::uint32_t number) const;

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

// Collects captions. The first one that is added is the null caption.
class Captions::Builder {
 public:
  // ON FAILURE: kExhausted: the disk is full; so for add().
  static Result<Builder> create(std::uint64_t dim, const std::string& scratch_folder);
  // `tokens`: [tokens, dim] in F16, at least one.
  // RETURNS: the caption's number; equal tokens have the same.
  Result<std::uint32_t> add(std::span<const std::uint16_t> tokens);
  // `of`: the number of each image's caption. Call it once, at the end.
  Result<Captions> finish(std::vector<std::uint32_t> of);

 private:
  std::shared_ptr<Impl> impl_;
  std::unordered_map<Hash, std::uint32_t> numbers_;
};

}  // namespace skerry::diffusion
