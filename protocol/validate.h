// SPDX-License-Identifier: Apache-2.0
// Turns bytes from outside into messages whose every field was checked against
// protocol/limits.h. A core sees no other messages.
//
// Checked here: size, parse, a known oneof, lengths of hashes and keys, names,
// finite numbers, known enumerators, counts. Only state can answer the rest:
// whether a name exists, an epoch is current, a role suffices.
//
// ON FAILURE: kInvalid, naming the field; nothing changed.
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

// Checks a run as run.toml states it. Messages name the key as in the file:
// "train.learning_rate".
Result<void> validate_run_spec(const pb::RunSpec& spec);

// A name is [a-z0-9][a-z0-9._-]* of at most kNameBytes. `what` begins the
// message ("node name").
Result<void> validate_name(std::string_view name, std::string_view what);

pb::Version own_version();
// RETURNS: whether the major version is the same and the minor one differs by
// at most one.
bool compatible(const pb::Version& version);
bool knows_gossip(const pb::Version& version);  // that version, and what came with it

// Converts an error to a message and back.
pb::Error to_message(const Error& error);
Error from_message(const pb::Error& error);

}  // namespace skerry::protocol
