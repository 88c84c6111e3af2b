// SPDX-License-Identifier: Apache-2.0
// Translates between the messages of the channel and the values of diffusion.
#pragma once

#include "diffusion/model/spec.h"
#include "protocol/engine.pb.h"

namespace skerry::engine {

diffusion::ModelSpec model_of(const pb::ModelSpec& message);
diffusion::TrainSpec training_of(const pb::EngineRequest::Start& start);
pb::EngineEvent::Failure failure_of(ErrorCode code);

}  // namespace skerry::engine
