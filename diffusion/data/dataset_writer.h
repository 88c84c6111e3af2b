// SPDX-License-Identifier: Apache-2.0
// Writes the sample files of a dataset folder: the shards of each partition and
// the held-back halves.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "diffusion/data/captions.h"
#include "diffusion/data/dataset_index.h"

namespace skerry::diffusion {

constexpr std::uint64_t kMaxShardBytes = 64U << 20;  // of pixels or latents

// Writes the images `rows`, in that order, to
// shard-<partition>-<i>.safetensors. Makes as few shards as kMaxShardBytes
// allows, of about equal size. Appends them to `files`. With `captions` each
// shard has the tensor `caption`, I32: a row of captions-<partition>-<i>, which
// is written beside it. `captions` may be null.
Result<void> write_shards(const std::string& folder, const ImageSet& images,
                          const Captions* captions, std::int32_t partition,
                          std::span<const std::uint32_t> rows, std::vector<DatasetFile>& files);

// Writes `role`.safetensors (fit or test) with the partition of each image, and
// captions-`role`.safetensors as write_shards() does.
Result<void> write_held_back(const std::string& folder, const std::string& role,
                             const ImageSet& images, const Captions* captions,
                             std::span<const std::uint32_t> rows,
                             std::span<const std::int32_t> partitions,
                             std::vector<DatasetFile>& files);

// RETURNS: the entry of a file that exists already.
Result<DatasetFile> file_entry(const std::string& folder, std::string name, std::string role,
                               std::int32_t partition, std::uint64_t samples);

}  // namespace skerry::diffusion
