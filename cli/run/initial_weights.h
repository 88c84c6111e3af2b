// SPDX-License-Identifier: Apache-2.0
// The `init` key of [model]: initial weights for every expert of a run. Those
// of an exported expert are taken as they are; public ones skerry-engine
// converts here, once. They are uploaded as a dataset of one file, which nodes
// fetch together with their shards.
//
// THREADS: one.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/run/run_file.h"
#include "cli/shell/command.h"
#include "model/pretrained_config.h"

namespace skerry::cli {

// Weights that a run is to start from.
struct InitialWeights {
  std::string folder;     // expert_K/ of a fetched ensemble, or the folder of a public transformer
  std::string objective;  // as a run file says it
  PretrainedConfig config;  // of the folder
};
// ON FAILURE: kNotFound without a config.json; kInvalid for a model that runs
// do not train.
Result<InitialWeights> open_initial_weights(const RunFile& file);

// Gives a run that names no shape that of the weights.
void take_shape(const InitialWeights& weights, const RunFile& file, pb::RunSpec& spec);

// Checks the weights against the model of a run, as far as that needs no
// conversion.
// RETURNS: why they need one; empty: they are the model's as they are.
// ON FAILURE: kNotFound if the folder holds no weights; kInvalid names what
// differs from the model.
Result<std::string> check_initial_weights(const InitialWeights& weights,
                                          const pb::ModelSpec& model);

// Converts the weights if they need it, and uploads them unless the coordinator
// has them.
// RETURNS: the dataset's name, a function of the weights' bytes.
// ON FAILURE: as check_initial_weights; kNotFound if they need a conversion and
// there is no skerry-engine here.
Result<std::string> upload_initial_weights(Command& command, const InitialWeights& weights,
                                           const pb::ModelSpec& model);

}  // namespace skerry::cli
