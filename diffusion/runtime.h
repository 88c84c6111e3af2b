// What this process computes with, for people and `skerry doctor`.
#pragma once

#include <string>

namespace skerry::diffusion {

// "LibTorch 2.11.0, 2 CUDA devices" or "LibTorch 2.11.0, no CUDA device". Asks the driver: may take a second.
std::string runtime_words();

}  // namespace skerry::diffusion
