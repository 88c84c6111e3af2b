// SPDX-License-Identifier: Apache-2.0
#include "diffusion/data/caption_embeddings.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/text.h"
#include "diffusion/formats/half.h"

namespace skerry::diffusion {
namespace {

using storage::DType;
using storage::TensorInfo;

std::string shape_of(const TensorInfo& tensor) {
  std::string out = "[";
  for (const std::uint64_t n : tensor.shape) out += text(out.size() > 1 ? "," : "", n);
  return out + "]";
}

Result<TensorInfo> find(const storage::Safetensors& file, const char* name, std::size_t dimensions,
                        std::initializer_list<DType> types, const char* expected) {
  const TensorInfo* const found = file.header().find(name);
  if (found == nullptr)
    return fail(ErrorCode::kInvalid, text("expected a tensor `", name, "` ", expected));
  if (found->shape.size() != dimensions || std::ranges::find(types, found->dtype) == types.end()) {
    return fail(ErrorCode::kInvalid, text("expected `", name, "` ", expected, ", found ",
                                          storage::name_of(found->dtype), ' ', shape_of(*found)));
  }
  return *found;
}

float number_at(DType type, const char* data, std::uint64_t index) {
  if (type == DType::kF32) {
    float value = 0;
    std::memcpy(&value, data + 4 * index, sizeof value);
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, data + 2 * index, sizeof bits);
  return type == DType::kF16 ? from_half(bits)
                             : std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

}  // namespace

Result<CaptionEmbeddings> CaptionEmbeddings::open(const std::string& path) {
  const auto named = [&](const Error& error) {
    return fail(error.code, text(path, ": ", error.message));
  };
  const auto floats = {DType::kF16, DType::kBF16, DType::kF32};
  CaptionEmbeddings out;
  out.path_ = path;
  auto file = storage::Safetensors::open(path);
  if (!file) return named(file.error());
  out.file_ = std::move(*file);
  auto embeddings = find(out.file_, "embeddings", 3, floats, "[N,L,D] of F16, BF16 or F32");
  if (!embeddings) return named(embeddings.error());
  auto mask = find(out.file_, "mask", 2, {DType::kBool, DType::kU8, DType::kI32, DType::kI64},
                   "[N,L] of BOOL, U8, I32 or I64");
  if (!mask) return named(mask.error());
  auto null = find(out.file_, "null", 2, floats, "[n,D] of F16, BF16 or F32");
  if (!null) return named(null.error());
  out.samples_ = embeddings->shape[0];
  out.longest_ = embeddings->shape[1];
  out.dim_ = embeddings->shape[2];
  if (mask->shape != std::vector{out.samples_, out.longest_}) {
    return named(
        fail(ErrorCode::kInvalid, text("expected `mask` of [", out.samples_, ',', out.longest_,
                                       "], as `embeddings`, found ", shape_of(*mask))));
  }
  if (null->shape[1] != out.dim_ || null->shape[0] == 0 || out.dim_ == 0) {
    return named(fail(ErrorCode::kInvalid, text("expected `null` of [n,", out.dim_,
                                                "], as `embeddings`, found ", shape_of(*null))));
  }
  out.embeddings_ = std::move(*embeddings);
  out.mask_ = std::move(*mask);
  out.null_ = std::move(*null);
  if (out.file_.view(out.mask_).data.find_first_not_of('\0') == std::string_view::npos) {
    return named(fail(ErrorCode::kInvalid,
                      "expected a `mask` that keeps tokens, found only zeros: 1 keeps one"));
  }
  return out;
}

bool CaptionEmbeddings::keeps(std::uint64_t at) const {
  const std::size_t width = storage::bytes_of(mask_.dtype);
  const std::string_view flag = file_.view(mask_).data.substr(at * width, width);
  return flag.find_first_not_of('\0') != std::string_view::npos;
}

Result<std::vector<std::uint16_t>> CaptionEmbeddings::halves(const TensorInfo& tensor,
                                                             std::uint64_t first,
                                                             std::uint64_t count,
                                                             const std::string& owner) const {
  const char* const data = file_.view(tensor).data.data();
  std::vector<std::uint16_t> out(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    const float value = number_at(tensor.dtype, data, first + i);
    out[i] = to_half(value);
    if (!std::isfinite(from_half(out[i]))) {
      return fail(ErrorCode::kInvalid,
                  text(path_, ": ", owner, ": expected finite numbers up to 65504, which 16 bits ",
                       "hold, found ", value));
    }
  }
  return out;
}

Result<std::vector<std::uint16_t>> CaptionEmbeddings::tokens_of(std::uint64_t sample) const {
  std::vector<std::uint16_t> tokens;
  for (std::uint64_t t = 0; t < longest_; ++t) {
    const std::uint64_t at = sample * longest_ + t;
    if (!keeps(at)) continue;
    ASSIGN_OR_RETURN(const std::vector<std::uint16_t> token,
                     halves(embeddings_, at * dim_, dim_, text("the caption of sample ", sample)));
    tokens.insert(tokens.end(), token.begin(), token.end());
  }
  return tokens;
}

Result<std::vector<std::uint16_t>> CaptionEmbeddings::null() const {
  return halves(null_, 0, null_.shape[0] * dim_, "the null caption");
}

}  // namespace skerry::diffusion
