// SPDX-License-Identifier: Apache-2.0
// Gossip's bytes from outside to checked messages, as protocol/validate.h does
// it for the others.
#pragma once

#include <string_view>

#include "base/result.h"
#include "protocol/gossip.pb.h"

namespace skerry::protocol {

// Checks sizes, counts and lengths; a record's body is opened by
// parse_record_body.
Result<pb::GossipMessage> parse_gossip_message(std::string_view bytes);
// The same for a message that came inside another one, which was parsed with a
// limit of its own.
Result<void> validate_gossip_message(const pb::GossipMessage& message);

// What a record says, every field checked. Says nothing about its signature,
// nor whether its author may say it.
Result<pb::RecordBody> parse_record_body(std::string_view bytes);

}  // namespace skerry::protocol
