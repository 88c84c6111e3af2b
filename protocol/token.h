// SPDX-License-Identifier: Apache-2.0
// A join token: one string to copy and paste. It pins the coordinator's key, so
// a token cannot be used against another coordinator, and it is checked by a
// sum, so a garbled one is told from a foreign one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "base/ids.h"
#include "base/result.h"
#include "protocol/endpoints.h"
#include "protocol/skerry.pb.h"

namespace skerry::protocol {

struct JoinToken {
  Endpoints endpoints;
  std::string coordinator_key;  // Ed25519, raw; its X25519 form is the server's CURVE key
  TokenId id;
  std::string secret;  // 32 random bytes
  pb::Role role = pb::ROLE_NONE;
  std::int64_t expires_unix_ms = 0;
};

// A fresh secret, and a fresh id, from the system's random source.
std::string new_token_secret();
TokenId new_token_id();
// What the coordinator stores in place of the secret.
Hash token_secret_hash(std::string_view secret);

// What a token's text carries.
pb::JoinTokenBody token_body(const JoinToken& token);
// "skerry1." + base64url.
std::string format_token(const JoinToken& token);
// kInvalid: not a token, garbled, or of another version; kUnauthorised:
// expired. Surrounding blanks are ignored.
Result<JoinToken> parse_token(std::string_view text, std::int64_t now_unix_ms);

}  // namespace skerry::protocol
