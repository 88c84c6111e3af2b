// SPDX-License-Identifier: Apache-2.0
// What this process computes with, for people and `skerry doctor`.
#pragma once

#include <string>

namespace skerry::diffusion {

// "LibTorch 2.11.0 for CUDA 13.0, 2 CUDA devices" or "LibTorch 2.11.0 without
// CUDA, no CUDA device", which base/cuda_driver.h reads again. Asks the driver:
// may take a second.
std::string runtime_words();

// CUDA devices that LibTorch sees.
int card_count();

}  // namespace skerry::diffusion
