// SPDX-License-Identifier: Apache-2.0
#include "diffusion/formats/latents.h"

#include <cmath>
#include <string>

#include "base/text.h"

namespace skerry::diffusion {
namespace {

constexpr std::int64_t kMostLabels = 1 << 20;

std::string shape_text(const std::vector<std::uint64_t>& shape) {
  std::string out = "[";
  for (const std::uint64_t extent : shape) out += text(out.size() == 1 ? "" : ",", extent);
  return out + "]";
}

}  // namespace

Result<void> validate(const LatentScaling& scaling) {
  const bool sane =
      std::isfinite(scaling.scale) && scaling.scale > 0 && std::isfinite(scaling.shift);
  if (sane) return {};
  return fail(ErrorCode::kInvalid,
              text("latents are scaled by a number above 0 and shifted by a finite one, found ",
                   scaling.scale, " and ", scaling.shift));
}

Latent LatentBlock::at(std::uint64_t index) const {
  const std::size_t side = static_cast<std::size_t>(size),
                    each = static_cast<std::size_t>(channels) * side * side;
  Latent latent{channels, size, std::vector<float>(each)};
  for (std::size_t i = 0; i < each; ++i)
    latent.values[i] = static_cast<float>(float_at(data, number_bytes, index * each + i));
  return latent;
}

Result<LatentBlock> latents_of(const NumberArray& array) {
  if (array.kind != 'f') {
    return fail(ErrorCode::kInvalid,
                "expected latents as floats of 2 or 4 bytes, found whole numbers: save them "
                "as np.float16 or np.float32");
  }
  std::vector<std::uint64_t> shape = array.shape;
  if (shape.size() == 3) shape.insert(shape.begin(), 1);
  const bool sane = shape.size() == 4 && shape[0] >= 1 && shape[0] <= UINT32_MAX && shape[1] >= 1 &&
                    shape[1] <= kMaxLatentChannels && shape[2] == shape[3] &&
                    shape[2] >= kMinLatentSize && shape[2] <= kMaxLatentSize;
  if (!sane) {
    return fail(
        ErrorCode::kInvalid,
        text("expected latents of the shape [N,C,S,S], with 1 to ", kMaxLatentChannels,
             " channels and squares of ", kMinLatentSize, " to ", kMaxLatentSize, ", found ",
             shape_text(array.shape), ": reshape, transpose or crop them to that"));
  }
  return LatentBlock{shape[0], static_cast<int>(shape[1]), static_cast<int>(shape[2]),
                     array.number_bytes, array.data};
}

Result<std::vector<std::int32_t>> labels_of(const NumberArray& array, std::uint64_t count) {
  if (array.kind == 'f' || array.shape != std::vector<std::uint64_t>{count}) {
    return fail(ErrorCode::kInvalid,
                text("expected labels as whole numbers, one for each of ", count,
                     " latents, found ", array.kind == 'f' ? "floats" : "whole numbers",
                     " of the shape ", shape_text(array.shape)));
  }
  std::vector<std::int32_t> labels;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::int64_t label = integer_at(array, i);
    if (label < -1 || label >= kMostLabels) {
      return fail(ErrorCode::kInvalid, text("expected labels of 0 to ", kMostLabels - 1,
                                            ", or −1 for none, found ", label, " at ", i));
    }
    labels.push_back(static_cast<std::int32_t>(label));
  }
  return labels;
}

}  // namespace skerry::diffusion
