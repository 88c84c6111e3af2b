// SPDX-License-Identifier: Apache-2.0
// Enrolment: a key, a token and a signature become a certificate. The first
// three functions are pure and serve both sides; enrol is the client's blocking
// walk through them.
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

// Of a key that the coordinator certified before it was restored to a state
// that does not know it.
pb::EnrolRequest build_readmission_request(const Identity& identity,
                                           std::string_view coordinator_key,
                                           const pb::Certificate& certificate, std::uint64_t id);

// Whether the sender owns the key it names: the signature holds for this
// server, and the key's X25519 form is the one that the handshake proved. Says
// nothing about the token. kUnauthorised otherwise.
Result<void> check_enrol_request(const pb::EnrolRequest& request, std::string_view server_curve_key,
                                 std::string_view connection_key);

struct Enrolled {
  pb::Certificate certificate;
  pb::CertificateBody body;  // verified
};

// Whether the reply grants this identity a certificate by the token's
// coordinator.
Result<Enrolled> check_enrol_reply(const pb::EnrolReply& reply, const Identity& identity,
                                   const JoinToken& token, std::int64_t now_unix_ms);

// Dials enrol over a transport that pins the token's coordinator, asks until
// answered, hangs up. A retry after a lost answer spends nothing twice.
// kUnauthorised where the server is another one or refuses, kTimeout where none
// answers, kUnavailable once `stop` can be read (−1: never).
Result<Enrolled> enrol(ClientTransport& transport, const Clock& clock, const JoinToken& token,
                       const Identity& identity, std::string_view name, Duration timeout,
                       int stop = -1);

}  // namespace skerry::protocol
