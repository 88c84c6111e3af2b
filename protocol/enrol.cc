// SPDX-License-Identifier: Apache-2.0
#include "protocol/enrol.h"

#include <optional>

#include "base/check.h"
#include "base/text.h"
#include "protocol/validate.h"

namespace skerry::protocol {
namespace {

constexpr Duration kRetryInterval = std::chrono::seconds(2);
// A coordinator that restarts behind a forwarded port can cause failed
// handshakes: the forwarder accepts and then hangs up.
constexpr Duration kForeignServerTime = std::chrono::seconds(10);

// Every part but the first has a fixed length, so no two requests sign the same
// bytes.
std::string signed_bytes(std::string_view token_id, std::string_view server_curve_key,
                         std::string_view own_key) {
  return text(token_id, server_curve_key, own_key);
}

struct Attempt {
  ClientTransport& transport;
  const Clock& clock;
  std::string request;
  std::uint64_t id;
  Duration last_sent = Duration::min();
  bool open = false;
  std::optional<Duration> refused_since;
  Result<pb::EnrolReply> reply = fail(ErrorCode::kTimeout, "");
  bool done = false;

  void finish(Result<pb::EnrolReply> outcome) {
    reply = std::move(outcome);
    done = true;
  }

  void on_event(ClientEvent event) {
    if (const auto* opened = std::get_if<Opened>(&event);
        opened != nullptr && opened->endpoint == Endpoint::kEnrol) {
      open = true;
      refused_since.reset();
      last_sent = Duration::min();
    } else if (const auto* lost = std::get_if<Lost>(&event);
               lost != nullptr && lost->endpoint == Endpoint::kEnrol) {
      open = false;
    } else if (const auto* refused = std::get_if<Refused>(&event);
               refused != nullptr && !refused->own_key) {
      const Duration now = clock.now().boot;
      if (!refused_since) refused_since = now;
      if (now - *refused_since >= kForeignServerTime) {
        finish(fail(
            ErrorCode::kUnauthorised,
            "the server at the token's address does not hold the key that the token pins: another "
            "coordinator answers there"));
      }
    } else if (const auto* received = std::get_if<Received>(&event);
               received != nullptr && received->endpoint == Endpoint::kEnrol) {
      auto parsed = parse_enrol_reply(received->bytes);
      if (!parsed || parsed->id() == id) finish(std::move(parsed));
    }
  }

  void send_if_due() {
    const Duration now = clock.now().boot;
    if (!open || (last_sent != Duration::min() && now - last_sent < kRetryInterval)) return;
    if (transport.send(Endpoint::kEnrol, request)) last_sent = now;
  }
};

}  // namespace

pb::EnrolRequest build_enrol_request(const Identity& identity, const JoinToken& token,
                                     std::string_view name, std::uint64_t id) {
  auto server_key = x25519_of(token.coordinator_key);
  SKERRY_CHECK(server_key.has_value(), "parse_token has checked the key");
  pb::EnrolRequest request;
  *request.mutable_version() = own_version();
  request.set_id(id);
  request.set_token_id(token.id.str());
  request.set_token_secret(token.secret);
  request.set_ed25519_key(identity.ed25519_key());
  request.set_name(std::string(name));
  request.set_signature(identity.sign(
      kEnrolDomain, signed_bytes(token.id.str(), *server_key, identity.ed25519_key())));
  return request;
}

pb::EnrolRequest build_readmission_request(const Signer& identity, std::string_view coordinator_key,
                                           const pb::Certificate& certificate, std::uint64_t id) {
  auto server_key = x25519_of(coordinator_key);
  SKERRY_CHECK(server_key.has_value(), "the context was checked");
  pb::EnrolRequest request;
  *request.mutable_version() = own_version();
  request.set_id(id);
  request.set_ed25519_key(identity.ed25519_key());
  *request.mutable_certificate() = certificate;
  request.set_signature(
      identity.sign(kEnrolDomain, signed_bytes("", *server_key, identity.ed25519_key())));
  return request;
}

Result<void> check_enrol_request(const pb::EnrolRequest& request, std::string_view server_curve_key,
                                 std::string_view connection_key) {
  const auto x25519 = x25519_of(request.ed25519_key());
  if (!x25519 || *x25519 != connection_key) {
    return fail(ErrorCode::kUnauthorised, "enrolment: the key is not the one of the connection");
  }
  if (!verify_signature(request.ed25519_key(), kEnrolDomain,
                        signed_bytes(request.token_id(), server_curve_key, request.ed25519_key()),
                        request.signature())) {
    return fail(ErrorCode::kUnauthorised, "enrolment: the signature does not prove the key");
  }
  return {};
}

Result<Enrolled> check_enrol_reply(const pb::EnrolReply& reply, const Identity& identity,
                                   const JoinToken& token, std::int64_t now_unix_ms) {
  if (reply.has_error()) return from_message(reply.error());
  ASSIGN_OR_RETURN(pb::CertificateBody body,
                   verify_certificate(reply.certificate(), token.coordinator_key, now_unix_ms));
  if (body.ed25519_key() != identity.ed25519_key()) {
    return fail(ErrorCode::kUnauthorised, "enrolment: the certificate is for another key");
  }
  return Enrolled{reply.certificate(), std::move(body)};
}

Result<Enrolled> enrol(ClientTransport& transport, const Clock& clock, const JoinToken& token,
                       const Identity& identity, std::string_view name, Duration timeout,
                       int stop) {
  const std::span<const int> readable(&stop, stop < 0 ? 0 : 1);
  const Duration deadline = clock.now().boot + timeout;
  constexpr std::uint64_t kId = 1;
  Attempt attempt{transport, clock,
                  build_enrol_request(identity, token, name, kId).SerializeAsString(), kId};
  transport.dial(Endpoint::kEnrol);
  while (!attempt.done) {
    attempt.send_if_due();
    const Duration now = clock.now().boot;
    if (now >= deadline) {
      attempt.finish(
          fail(ErrorCode::kTimeout,
               text("no answer from ", token.endpoints.enrol, " within ", human_duration(timeout),
                    ": is the coordinator running, and can this machine reach it?")));
      break;
    }
    auto polled = transport.poll(std::min(deadline - now, kRetryInterval), readable,
                                 [&](ClientEvent event) { attempt.on_event(std::move(event)); });
    if (!polled) {
      attempt.finish(polled.error());
    } else if (!polled->empty() && !attempt.done) {
      attempt.finish(fail(ErrorCode::kUnavailable, "stopped before the coordinator answered"));
    }
  }
  transport.hang_up(Endpoint::kEnrol);
  if (!attempt.reply) return attempt.reply.error();
  return check_enrol_reply(*attempt.reply, identity, token, clock.now().unix_ms);
}

}  // namespace skerry::protocol
