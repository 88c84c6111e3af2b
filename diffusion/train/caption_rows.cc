// SPDX-License-Identifier: Apache-2.0
#include "diffusion/train/caption_rows.h"

#include <cstring>

#include "base/text.h"

namespace skerry::diffusion {

using storage::DType;

bool CaptionRows::are_in(const storage::Safetensors& file) {
  return file.header().find("tokens") != nullptr && file.header().find("begin") != nullptr;
}

Result<CaptionRows> CaptionRows::open(const std::string& path, std::uint32_t dim) {
  CaptionRows rows;
  ASSIGN_OR_RETURN(rows.file_, storage::Safetensors::open(path));
  ASSIGN_OR_RETURN(const storage::TensorView tokens, rows.file_.tensor("tokens"));
  ASSIGN_OR_RETURN(const storage::TensorView begin, rows.file_.tensor("begin"));
  if (tokens.dtype != DType::kF16 || tokens.shape.size() != 2 || tokens.shape[1] != dim) {
    return fail(ErrorCode::kInvalid,
                text(path, ": tokens must be F16 [n,", dim, "], as the model reads them"));
  }
  if (begin.dtype != DType::kI64 || begin.shape.size() != 1 || begin.shape[0] < 2)
    return fail(ErrorCode::kInvalid, text(path, ": begin must be I64 [captions + 1]"));
  rows.begin_ = begin.data;
  rows.tokens_ = tokens.data;
  rows.size_ = begin.shape[0] - 1;
  rows.row_bytes_ = std::uint64_t{dim} * storage::bytes_of(DType::kF16);
  bool grows =
      rows.begin(0) == 0 && rows.begin(rows.size_) == static_cast<std::int64_t>(tokens.shape[0]);
  for (std::uint64_t c = 0; c < rows.size_; ++c) grows = grows && rows.begin(c) < rows.begin(c + 1);
  if (!grows) {
    return fail(ErrorCode::kInvalid,
                text(path, ": begin must grow from 0 to the ", tokens.shape[0], " tokens"));
  }
  return rows;
}

std::int64_t CaptionRows::begin(std::uint64_t caption) const {
  std::int64_t place = 0;
  std::memcpy(&place, begin_.data() + caption * sizeof place, sizeof place);
  return place;
}

std::string_view CaptionRows::tokens(std::uint64_t caption) const {
  const auto first = static_cast<std::uint64_t>(begin(caption));
  const auto last = static_cast<std::uint64_t>(begin(caption + 1));
  return tokens_.substr(first * row_bytes_, (last - first) * row_bytes_);
}

}  // namespace skerry::diffusion
