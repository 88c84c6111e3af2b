// SPDX-License-Identifier: Apache-2.0
// Uploads a dataset to the coordinator.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/dataset/dataset_index.h"
#include "cli/shell/command.h"

namespace skerry::cli {

// RETURNS: the coordinator's state of the dataset.
Result<pb::DatasetInfo> one_dataset(Command& command, const std::string& name);

// Announces the dataset and serves its chunks until the coordinator has all of
// them. A repeated upload resumes.
// ON FAILURE: kConflict if other content has the name.
Result<void> upload(Command& command, const std::string& name, const DatasetIndex& index);

}  // namespace skerry::cli
