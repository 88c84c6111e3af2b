// SPDX-License-Identifier: Apache-2.0
// dataset.json, the index of a dataset folder. Plain values; the JSON library
// stays in the .cc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "diffusion/formats/read_images.h"

namespace skerry::diffusion {

struct DatasetFile {
  std::string name;
  std::string role;             // shard, router, partition, fit, test, captions
  std::int32_t partition = -1;  // of shards, their captions, and partitions
  std::uint64_t samples = 0;
  std::uint64_t bytes = 0;
};

// What the captions of a dataset are.
struct DatasetText {
  std::uint64_t dim = 0;      // of a token
  std::string encoder;        // "imported": embeddings that the user computed
  std::uint64_t longest = 0;  // tokens of a caption
  std::uint64_t sided = 0;    // distinct captions that say left or right, where they are known
};

struct DatasetIndex {
  std::uint32_t partitions = 0;
  std::uint64_t samples = 0;  // in the shards, which train experts
  int channels = 0;
  int image_size = 0;
  std::optional<LatentScaling> latents;  // how they were scaled; none: pixels
  std::optional<DatasetText> text;       // none: no captions
  std::vector<std::string> classes;
  std::vector<std::uint64_t> partition_samples;
  std::uint64_t skipped = 0;
  std::vector<SkippedImage> skipped_examples;
  std::vector<DatasetFile> files;
};

std::string to_json(const DatasetIndex& index);
// Writes `folder`/dataset.json, and syncs it and the folder.
Result<void> write_dataset_index(const std::string& folder, const DatasetIndex& index);

}  // namespace skerry::diffusion
