// SPDX-License-Identifier: Apache-2.0
#include "protocol/token.h"

#include <sodium.h>

#include "base/check.h"
#include "protocol/identity.h"
#include "tests/fuzz/targets.h"

namespace skerry::fuzz {
namespace {

using namespace protocol;

// A token's text around any body: its sum is right, which no mutation would
// ever achieve.
std::string wrapped(std::string_view body) {
  constexpr int kVariant = sodium_base64_VARIANT_URLSAFE_NO_PADDING;
  const std::string bytes = std::string(body) + blake2b(body).raw().substr(0, 4);
  std::string coded(sodium_base64_encoded_len(bytes.size(), kVariant), '\0');
  sodium_bin2base64(coded.data(), coded.size(),
                    reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), kVariant);
  return text("skerry1.", coded.c_str());
}

bool same(const JoinToken& a, const JoinToken& b) {
  return a.endpoints == b.endpoints && a.coordinator_key == b.coordinator_key && a.id == b.id &&
         a.secret == b.secret && a.role == b.role && a.expires_unix_ms == b.expires_unix_ms;
}

}  // namespace

// b: the body of a token; anything else: its text.
Verdict token(std::string_view input) {
  constexpr std::int64_t kNow = 1'800'000'000'000;
  const auto parsed =
      parse_token(input.starts_with('b') ? wrapped(input.substr(1)) : std::string(input), kNow);
  if (!parsed) return Verdict::kRefused;
  SKERRY_CHECK(parsed->expires_unix_ms > kNow, "accepted a token that is over");
  SKERRY_CHECK(parsed->secret.size() == kKeyBytes, "a secret of ", parsed->secret.size(), " bytes");
  SKERRY_CHECK(pb::Role_IsValid(parsed->role), "an unknown role");
  for (const Endpoint endpoint : kAllEndpoints) {
    SKERRY_CHECK(check_url(parsed->endpoints.of(endpoint)).has_value(),
                 "an endpoint that nobody can dial");
  }
  const auto again = parse_token(format_token(*parsed), kNow);
  SKERRY_CHECK(again.has_value() && same(*parsed, *again),
               "a token that differs when encoded again");
  return Verdict::kAccepted;
}

}  // namespace skerry::fuzz
