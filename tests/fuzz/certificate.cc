// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"
#include "protocol/identity.h"
#include "tests/fuzz/sane.h"
#include "tests/fuzz/targets.h"

namespace skerry::fuzz {
namespace {

using namespace protocol;

const Identity& coordinator() {
  static const Identity identity = *Identity::from_seed(std::string(kKeyBytes, 'c'));
  return identity;
}

}  // namespace

// b: the body of a certificate, which the coordinator then signs; anything
// else: a certificate.
Verdict certificate(std::string_view input) {
  constexpr std::int64_t kNow = 1'800'000'000'000;
  pb::Certificate outside;
  if (input.starts_with('b')) {
    outside.set_body(std::string(input.substr(1)));
    outside.set_signature(coordinator().sign(kCertificateDomain, outside.body()));
  } else if (!outside.ParseFromArray(input.data(), static_cast<int>(input.size()))) {
    return Verdict::kRefused;
  }
  const auto body = verify_certificate(outside, coordinator().ed25519_key(), kNow);
  if (!body) return Verdict::kRefused;
  check_sane(*body);
  SKERRY_CHECK(body->expires_unix_ms() > kNow, "accepted a certificate that is over");
  SKERRY_CHECK(body->node_id() == node_id(body->ed25519_key()).str(), "accepted another node's id");
  SKERRY_CHECK(body->x25519_key() == *x25519_of(body->ed25519_key()),
               "accepted another node's key");
  const auto again = verify_certificate(issue_certificate(coordinator(), *body),
                                        coordinator().ed25519_key(), kNow);
  SKERRY_CHECK(again.has_value() && again->SerializeAsString() == body->SerializeAsString(),
               "a certificate that differs when issued again");
  return Verdict::kAccepted;
}

}  // namespace skerry::fuzz
