// What training alone needs of a dataset folder: its shape, and the shards of one partition.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace skerry::engine {

struct DatasetFolder {
  std::uint32_t image_size = 0;
  std::uint32_t channels = 0;
  std::uint32_t classes = 0;
  std::vector<std::string> shards;  // paths, in the order of dataset.json
};

// kNotFound without a dataset.json or without a shard of the partition; kCorrupt for one that is damaged.
Result<DatasetFolder> open_dataset_folder(const std::string& folder, std::uint32_t partition);

}  // namespace skerry::engine
