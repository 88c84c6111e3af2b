// SPDX-License-Identifier: Apache-2.0
// Captions of several lengths as one batch. Includes LibTorch: for this folder
// only.
// THREADS: any.
#pragma once

#include <string_view>
#include <vector>

#include "diffusion/model/model.h"

namespace skerry::diffusion {

// RETURNS: a Condition on the host with captions F16 [B,N,dim] and their mask,
// padded with zeros to the longest. `pinned`: as make_batch().
// REQUIRES: each caption is F16 [tokens,dim], one token at least.
Condition padded(const std::vector<std::string_view>& captions, std::uint32_t dim,
                 bool pinned = false);

}  // namespace skerry::diffusion
