// SPDX-License-Identifier: Apache-2.0 The `init` key of [model]: initial
// weights for every expert of a run. They are uploaded as a dataset of one
// file, which nodes fetch together with their shards.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/shell/command.h"

namespace skerry::cli {

// Checks weights against a model. `folder` is expert_K/ of a fetched ensemble,
// or another single-file output of diffusers' DiTTransformer2DModel.
// ON FAILURE: kNotFound if it holds no weights; kInvalid names a tensor that
// does not match the model's.
Result<void> check_initial_weights(const std::string& folder, const pb::ModelSpec& model);

// Uploads the weights unless the coordinator has them.
// RETURNS: the dataset's name, a function of the weights' bytes.
Result<std::string> upload_initial_weights(Command& command, const std::string& folder,
                                           const pb::ModelSpec& model);

}  // namespace skerry::cli
