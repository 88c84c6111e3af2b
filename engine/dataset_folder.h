// SPDX-License-Identifier: Apache-2.0
// The parts of a dataset folder that training needs: its shape, and the shards
// of one partition or of all.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace skerry::engine {

struct DatasetFolder {
  std::uint32_t image_size = 0;
  std::uint32_t channels = 0;
  std::uint32_t classes = 0;
  std::uint32_t partitions = 0;
  std::uint32_t caption_dim = 0;      // of a token; 0: the dataset has no text
  std::uint32_t caption_tokens = 0;   // of the longest caption
  std::vector<std::string> captions;  // paths, in the order of their shards
  std::vector<std::string> shards;    // paths, in the order of dataset.json
  std::vector<std::uint32_t> shard_partitions;
};

// Without a partition, the shards of all.
// ON FAILURE: kNotFound without a dataset.json or a shard of the partition;
// kCorrupt for a damaged dataset.json.
Result<DatasetFolder> open_dataset_folder(const std::string& folder,
                                          std::optional<std::uint32_t> partition);

}  // namespace skerry::engine
