// SPDX-License-Identifier: Apache-2.0
// Bytes of the engine channel to messages whose every field has been checked:
// the engine's own view of validate.h, without what only the network needs.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"
#include "protocol/engine.pb.h"

namespace skerry::protocol {

Result<pb::EngineRequest> parse_engine_request(std::string_view bytes);
// A loss, norm or speed in Progress that is not finite becomes the largest
// finite number: an engine that diverges says so itself, with Failed, and must
// be heard.
Result<pb::EngineEvent> parse_engine_event(std::string_view bytes);

// Ranges of a model and of training, with messages that name the key as
// run.toml does ("model.width", "train.steps").
Result<void> validate_model(const pb::ModelSpec& model);
Result<void> validate_train(const pb::TrainSpec& train);
// The router's job names the partition of each shard, an expert's job none.
Result<void> validate_partitions(const pb::ModelSpec& model,
                                 const google::protobuf::RepeatedField<std::uint32_t>& partitions,
                                 int shards);
// Of these, only that each choice is one that this version knows.
Result<void> validate_choices(const pb::TrainSpec& train);

}  // namespace skerry::protocol
