// SPDX-License-Identifier: Apache-2.0
// Translates between the messages of the channel and the values of diffusion.
#pragma once

#include "model/spec.h"
#include "protocol/engine.pb.h"

namespace skerry::engine {

ModelSpec model_of(const pb::ModelSpec& message);
TrainSpec training_of(const pb::EngineRequest::Start& start);
pb::EngineEvent::Failure failure_of(ErrorCode code);

}  // namespace skerry::engine
