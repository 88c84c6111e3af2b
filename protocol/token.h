// SPDX-License-Identifier: Apache-2.0
// A join token: one string to copy and paste. It pins the coordinator's key, so
// another coordinator cannot use it. A checksum distinguishes a garbled token
// from a foreign one.
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

// A new secret and a new id, from the system's random source.
std::string new_token_secret();
TokenId new_token_id();
// RETURNS: the hash that the coordinator stores in place of the secret.
Hash token_secret_hash(std::string_view secret);

// RETURNS: the message that a token's text carries.
pb::JoinTokenBody token_body(const JoinToken& token);
// "skerry1." + base64url.
std::string format_token(const JoinToken& token);
// Ignores surrounding blanks.
// ON FAILURE: kInvalid if it is no token, garbled, or of another version;
// kUnauthorised if it expired.
Result<JoinToken> parse_token(std::string_view text, std::int64_t now_unix_ms);

}  // namespace skerry::protocol
