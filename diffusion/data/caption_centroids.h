// SPDX-License-Identifier: Apache-2.0
// What the captions of a dataset say about its partitions. Does not include
// LibTorch.
// THREADS: one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "diffusion/data/captions.h"
#include "diffusion/router/prompt_shares.h"

namespace skerry::diffusion {

// `rows`: the training images of each partition. `held_out`: images with their
// partitions, by whose captions the sharpness is fitted. Images without a
// caption count for nothing.
//
// A distinct caption is a centroid. If there are more than
// kMostCaptionCentroids, so many, evenly drawn, gather their neighbours.
// RETURNS: none if no training image has a caption.
std::optional<CaptionStatistics> caption_statistics(
    const Captions& captions, const std::vector<std::vector<std::uint32_t>>& rows,
    std::span<const std::uint32_t> held_out, std::span<const std::int32_t> partitions);

}  // namespace skerry::diffusion
