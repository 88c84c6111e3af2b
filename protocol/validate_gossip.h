// SPDX-License-Identifier: Apache-2.0
// Turns gossip's bytes from outside into checked messages, as
// protocol/validate.h does for the others.
#pragma once

#include <string_view>

#include "base/result.h"
#include "protocol/gossip.pb.h"

namespace skerry::protocol {

// Checks sizes, counts and lengths; parse_record_body() opens a record's body.
Result<pb::GossipMessage> parse_gossip_message(std::string_view bytes);
// The same for a message inside another one, which was parsed under its own
// limit.
Result<void> validate_gossip_message(const pb::GossipMessage& message);

// RETURNS: a record's body, every field checked. Does not check its signature,
// nor whether its author may state this.
Result<pb::RecordBody> parse_record_body(std::string_view bytes);

}  // namespace skerry::protocol
