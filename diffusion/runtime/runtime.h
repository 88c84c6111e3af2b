// SPDX-License-Identifier: Apache-2.0
// Describes the library and cards that this process computes with, for people
// and `skerry doctor`.
#pragma once

#include <string>

namespace skerry::diffusion {

// RETURNS: "LibTorch 2.11.0 for CUDA 13.0, 2 CUDA devices" or "LibTorch 2.11.0
// without CUDA, no CUDA device". base/cuda_driver.h parses it. It asks the
// driver, which may take a second.
std::string runtime_words();

// RETURNS: the number of CUDA devices that LibTorch sees.
int card_count();

}  // namespace skerry::diffusion
