// SPDX-License-Identifier: Apache-2.0
// A dataset on its way to the coordinator.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/dataset/dataset_index.h"
#include "cli/shell/command.h"

namespace skerry::cli {

// What the coordinator knows of it.
Result<pb::DatasetInfo> one_dataset(Command& command, const std::string& name);

// Announces it and answers for its chunks until the coordinator has all of
// them. The same again goes on where it stopped; kConflict: the name is taken
// by other content.
Result<void> upload(Command& command, const std::string& name, const DatasetIndex& index);

}  // namespace skerry::cli
