// SPDX-License-Identifier: Apache-2.0
// The learned router as an additional job of its run: a small model that trains
// on every partition. Its index is one past the last expert's, so leases,
// rounds and commits treat it as an expert. Pure functions of a run's
// specification.
#pragma once

#include "protocol/skerry.pb.h"

namespace skerry::coordinator {

bool trains_router(const pb::RunSpec& spec);

// RETURNS: the expert's model with half of its heads, where such a model
// exists, and logits for `experts`.
pb::ModelSpec router_model(const pb::ModelSpec& expert, std::uint32_t experts);

// RETURNS: the run's training with uniform t, and with a batch size that gives
// the router 4 % of all multiplications (arXiv 2501.05450).
pb::TrainSpec router_training(const pb::TrainSpec& train, const pb::ModelSpec& expert,
                              std::uint32_t experts);

}  // namespace skerry::coordinator
