// SPDX-License-Identifier: Apache-2.0
#include "diffusion/data/held_back.h"

#include <algorithm>
#include <cstring>

#include "base/text.h"
#include "diffusion/formats/latents.h"

namespace skerry::diffusion {
namespace {

Result<std::vector<std::int32_t>> read_column(const storage::Safetensors& file,
                                              const std::string& path, std::string_view name,
                                              std::uint64_t rows) {
  ASSIGN_OR_RETURN(const storage::TensorView tensor, file.tensor(name));
  if (tensor.dtype != storage::DType::kI32 || tensor.shape != std::vector<std::uint64_t>{rows}) {
    return fail(ErrorCode::kCorrupt, text(path, ": ", name, " is not I32 [", rows, "]"));
  }
  std::vector<std::int32_t> values(rows);
  std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
  return values;
}

}  // namespace

Result<HeldBack> read_held_back(const std::string& path) {
  ASSIGN_OR_RETURN(storage::Safetensors file, storage::Safetensors::open(path));
  const bool latents = file.header().find("latents") != nullptr;
  ASSIGN_OR_RETURN(const storage::TensorView images, file.tensor(latents ? "latents" : "images"));
  const auto& shape = images.shape;
  const bool square = images.dtype == (latents ? storage::DType::kF16 : storage::DType::kU8) &&
                      shape.size() == 4 && shape[2] == shape[3] && shape[1] >= 1 &&
                      shape[1] <= (latents ? kMaxLatentChannels : 3) && shape[2] >= 1 &&
                      shape[2] <= 65536;
  if (!square) {
    return fail(ErrorCode::kCorrupt,
                text(path, ": ", latents ? "latents is not F16" : "images is not U8",
                     " [n, channels, size, size]"));
  }
  HeldBack out;
  out.pixels = {reinterpret_cast<const std::uint8_t*>(images.data.data()),
                shape[0],
                images.data.size() / std::max<std::uint64_t>(1, shape[0]),
                static_cast<int>(shape[1]),
                static_cast<int>(shape[2]),
                latents};
  ASSIGN_OR_RETURN(out.labels, read_column(file, path, "labels", shape[0]));
  ASSIGN_OR_RETURN(out.partitions, read_column(file, path, "partitions", shape[0]));
  out.file = std::move(file);
  return out;
}

}  // namespace skerry::diffusion
