// SPDX-License-Identifier: Apache-2.0
// Validators of the parts of control requests and replies. Start from
// validate.h.
#pragma once

#include "base/result.h"
#include "protocol/skerry.pb.h"

namespace skerry::protocol::parts {

Result<void> validate(const pb::Hello& hello);
Result<void> validate(const pb::Heartbeat& heartbeat);
Result<void> validate(const pb::Commit& commit);
Result<void> validate(const pb::ReturnLease& lease);
Result<void> validate(const pb::EngineReport& report);
Result<void> validate(const pb::NodeLog& log);
Result<void> validate(const pb::AdminRequest& request);

Result<void> validate(const pb::HelloReply& reply);
Result<void> validate(const pb::HeartbeatReply& reply);
Result<void> validate(const pb::Assignment& assignment);
Result<void> validate(const pb::CommitReply& reply);
Result<void> validate(const pb::AdminReply& reply);

// Shared by several of them.
Result<void> validate(const pb::ObjectRef& object);
Result<void> validate(const pb::DatasetFile& file);
Result<void> validate(const pb::SlotStatus& status);
Result<void> validate_slots(const google::protobuf::RepeatedPtrField<pb::Slot>& slots);
Result<void> validate_expert(std::string_view run, std::uint32_t expert);

}  // namespace skerry::protocol::parts
