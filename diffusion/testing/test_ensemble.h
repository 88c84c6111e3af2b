// SPDX-License-Identifier: Apache-2.0
// Trains an ensemble of a dataset folder in this process, for tests. Does not
// include LibTorch.
#pragma once

#include <string>

#include "base/result.h"
#include "model/spec.h"

namespace skerry::diffusion::testing {

// Trains expert 0 … K−1 by `train`, whose `expert` it sets. Writes an ensemble
// folder with their EMA weights. `model` takes its image size, channels and
// classes from the dataset.
Result<void> train_ensemble(const std::string& dataset, const std::string& ensemble,
                            ModelSpec model, TrainSpec train);

}  // namespace skerry::diffusion::testing
