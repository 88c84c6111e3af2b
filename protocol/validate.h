// SPDX-License-Identifier: Apache-2.0
// Bytes from outside to messages whose every field has been checked against
// protocol/limits.h. A core sees nothing else. Failures are kInvalid and name
// the field; they change nothing.
//
// Checked: size, parse, a oneof that is known, lengths of hashes and keys,
// names, finite numbers, known enumerators, counts. Not checked here, since
// only state can tell: whether a name exists, an epoch is current, a role
// suffices.
#pragma once

#include <string_view>

#include "base/result.h"
#include "protocol/skerry.pb.h"
#include "protocol/validate_engine.h"

namespace skerry::protocol {

Result<pb::EnrolRequest> parse_enrol_request(std::string_view bytes);
Result<pb::EnrolReply> parse_enrol_reply(std::string_view bytes);
Result<pb::ControlRequest> parse_control_request(std::string_view bytes);
Result<pb::ControlReply> parse_control_reply(std::string_view bytes);
Result<pb::BlobMessage> parse_blob_message(std::string_view bytes);

// A run as run.toml states it. Messages name the key as in the file:
// "train.learning_rate".
Result<void> validate_run_spec(const pb::RunSpec& spec);

// [a-z0-9][a-z0-9._-]*, at most kNameBytes; `what` begins the message ("node
// name").
Result<void> validate_name(std::string_view name, std::string_view what);

pb::Version own_version();
// Same major, and at most one minor away in either direction.
bool compatible(const pb::Version& version);
bool knows_gossip(const pb::Version& version);  // and may be sent what came with it

// An error on its way to the other side and back.
pb::Error to_message(const Error& error);
Error from_message(const pb::Error& error);

}  // namespace skerry::protocol
