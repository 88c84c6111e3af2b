// SPDX-License-Identifier: Apache-2.0
// [model] init: weights that every expert of a run starts from. They travel as
// a dataset of one file, which the coordinator hands to nodes beside their
// shards.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/shell/command.h"

namespace skerry::cli {

// `folder` is expert_K/ of a fetched ensemble, or what else diffusers'
// DiTTransformer2DModel wrote in one file. kNotFound: it holds no weights;
// kInvalid names the tensor that is not as the model's.
Result<void> check_initial_weights(const std::string& folder, const pb::ModelSpec& model);

// Uploads them, unless they are there, and returns the name of the dataset: a
// function of their bytes.
Result<std::string> upload_initial_weights(Command& command, const std::string& folder,
                                           const pb::ModelSpec& model);

}  // namespace skerry::cli
