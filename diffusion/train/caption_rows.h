// SPDX-License-Identifier: Apache-2.0
// The distinct captions of a shard's samples, as Captions::write() stores them:
// `tokens` F16 [T,D], `begin` I64 [C+1]. Row 0 is the null caption. Does not
// include LibTorch.
// THREADS: any; immutable after open().
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "storage/safetensors.h"

namespace skerry::diffusion {

class CaptionRows {
 public:
  CaptionRows() = default;
  // RETURNS: whether a file holds captions.
  static bool are_in(const storage::Safetensors& file);
  // Maps the file and checks its shapes and `begin`.
  // ON FAILURE: kInvalid names the file.
  static Result<CaptionRows> open(const std::string& path, std::uint32_t dim);

  std::uint64_t size() const { return size_; }  // with the null caption
  // RETURNS: F16 [tokens, D]; one token at least.
  // REQUIRES: caption < size().
  // LIFETIME: this object's.
  std::string_view tokens(std::uint64_t caption) const;

 private:
  std::int64_t begin(std::uint64_t caption) const;

  storage::Safetensors file_;
  std::string_view begin_, tokens_;
  std::uint64_t size_ = 0, row_bytes_ = 0;
};

}  // namespace skerry::diffusion
