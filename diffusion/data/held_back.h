// SPDX-License-Identifier: Apache-2.0
// A held-back half (fit.safetensors, test.safetensors), memory-mapped.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "diffusion/formats/pixels.h"
#include "storage/safetensors.h"

namespace skerry::diffusion {

struct HeldBack {
  storage::Safetensors file;
  PixelView pixels;                      // views into `file`
  std::vector<std::int32_t> labels;      // −1: unlabelled
  std::vector<std::int32_t> partitions;  // by the partition rule
};
Result<HeldBack> read_held_back(const std::string& path);

}  // namespace skerry::diffusion
