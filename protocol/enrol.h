// SPDX-License-Identifier: Apache-2.0
// Enrolment: turns a key, a token and a signature into a certificate. The first
// three functions are pure and serve both sides. enrol() runs the client's side
// and blocks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "protocol/identity.h"
#include "protocol/token.h"
#include "protocol/transport.h"

namespace skerry::protocol {

pb::EnrolRequest build_enrol_request(const Identity& identity, const JoinToken& token,
                                     std::string_view name, std::uint64_t id);

// Builds the request of a key that the coordinator certified before a restore
// to a state that does not know it.
pb::EnrolRequest build_readmission_request(const Signer& identity, std::string_view coordinator_key,
                                           const pb::Certificate& certificate, std::uint64_t id);

// Checks that the sender owns the key that it names. The signature must hold
// for this server, and the handshake must have proved the key's X25519 form.
// Does not check the token.
// ON FAILURE: kUnauthorised.
Result<void> check_enrol_request(const pb::EnrolRequest& request, std::string_view server_curve_key,
                                 std::string_view connection_key);

struct Enrolled {
  pb::Certificate certificate;
  pb::CertificateBody body;  // verified
};

// Checks that the reply grants this identity a certificate by the token's
// coordinator.
Result<Enrolled> check_enrol_reply(const pb::EnrolReply& reply, const Identity& identity,
                                   const JoinToken& token, std::int64_t now_unix_ms);

// Dials enrol over a transport that pins the token's coordinator, retries until
// answered, hangs up. A retry after a lost answer spends no second use of the
// token.
// ON FAILURE: kUnauthorised if the server is another one or refuses; kTimeout
// if no server answers; kUnavailable once `stop` is readable (−1: never).
Result<Enrolled> enrol(ClientTransport& transport, const Clock& clock, const JoinToken& token,
                       const Identity& identity, std::string_view name, Duration timeout,
                       int stop = -1);

}  // namespace skerry::protocol
