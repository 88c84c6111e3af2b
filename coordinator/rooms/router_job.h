// SPDX-License-Identifier: Apache-2.0
// The learned router as one more job of its run: a small model that reads every
// partition. Its index is one past the last expert's, so that leases, rounds
// and commits know nothing of it. Plain functions of a run's specification.
#pragma once

#include "protocol/skerry.pb.h"

namespace skerry::coordinator {

bool trains_router(const pb::RunSpec& spec);

// The expert's model with half of its heads, where such a model exists, and
// logits for `experts`.
pb::ModelSpec router_model(const pb::ModelSpec& expert, std::uint32_t experts);

// The run's training with a batch that makes the router's part of all products
// just 4 % (arXiv 2501.05450), t uniform.
pb::TrainSpec router_training(const pb::TrainSpec& train, const pb::ModelSpec& expert,
                              std::uint32_t experts);

}  // namespace skerry::coordinator
