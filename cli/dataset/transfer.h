// SPDX-License-Identifier: Apache-2.0
// Serves a dataset folder as objects that the coordinator can fetch.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "cli/connect/admin_client.h"
#include "cli/dataset/dataset_index.h"
#include "cli/shell/surroundings.h"

namespace skerry::cli {

struct ServedDataset {
  pb::DatasetAdd announcement;
  // Offers every file; verifies each chunk as it is read.
  std::unique_ptr<exchange::FolderChunkStore> chunk_store;
  std::uint64_t bytes = 0;
};

// Hashes every file and shows the progress.
// ON FAILURE: kExhausted if the description does not fit into a message.
Result<ServedDataset> open_dataset(const DatasetIndex& index, const std::string& name,
                                   Surroundings& around);

}  // namespace skerry::cli
