// SPDX-License-Identifier: Apache-2.0
// Turns bytes of the engine channel into messages whose every field was
// checked. It is the engine's part of validate.h, without what only the network
// needs.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"
#include "protocol/engine.pb.h"

namespace skerry::protocol {

Result<pb::EngineRequest> parse_engine_request(std::string_view bytes);
// Replaces a loss, norm or speed in Progress that is not finite by the largest
// finite number. An engine that diverges reports Failed itself, and that
// message must get through.
Result<pb::EngineEvent> parse_engine_event(std::string_view bytes);

// Check the ranges of a model and of training. Messages name the key as
// run.toml does ("model.width", "train.steps").
Result<void> validate_model(const pb::ModelSpec& model);
Result<void> validate_train(const pb::TrainSpec& train);
// The router's job names the partition of each shard; an expert's job names
// none.
Result<void> validate_partitions(const pb::ModelSpec& model,
                                 const google::protobuf::RepeatedField<std::uint32_t>& partitions,
                                 int shards);
// Checks only that this version knows each choice.
Result<void> validate_choices(const pb::TrainSpec& train);

}  // namespace skerry::protocol
