// SPDX-License-Identifier: Apache-2.0
// A dataset folder as objects that the coordinator can fetch.
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
  std::unique_ptr<exchange::FolderShelf>
      shelf;  // offers every file; each chunk is checked as it is read
  std::uint64_t bytes = 0;
};

// Hashes every file: the person sees the progress. kExhausted where the
// description is longer than a message.
Result<ServedDataset> open_dataset(const DatasetIndex& index, const std::string& name,
                                   Surroundings& around);

}  // namespace skerry::cli
