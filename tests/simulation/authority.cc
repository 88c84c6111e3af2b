// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/authority.h"

#include "base/hash.h"
#include "base/text.h"
#include "protocol/validate.h"

namespace skerry::simulation {
namespace {

std::string signed_by(const std::string& key, const std::string& words) {
  return blake2b("one" + key + words).raw() + blake2b("two" + key + words).raw();
}

NodeId id_of(const std::string& ed25519_key) {
  return NodeId(blake2b(ed25519_key).hex().substr(0, 32));
}
std::string x25519_of(const std::string& ed25519_key) {
  return blake2b("x25519" + ed25519_key).raw();
}

}  // namespace

Identity identity_of(const std::string& secret) {
  Identity identity;
  identity.ed25519_key = blake2b("ed25519" + secret).raw();
  identity.x25519_key = x25519_of(identity.ed25519_key);
  identity.id = id_of(identity.ed25519_key);
  return identity;
}

// As protocol/enrol.cc signs it.
std::string enrolment_signature(const std::string& key, const std::string& token) {
  static const std::string kServer = *protocol::x25519_of(coordinator_identity().ed25519_key);
  return signed_by(key, text(protocol::kEnrolDomain, token, kServer, key));
}

pb::EnrolRequest enrol_request(const Identity& identity, const std::string& name,
                               const pb::TokenCreated& token) {
  pb::EnrolRequest request;
  *request.mutable_version() = protocol::own_version();
  request.set_id(1);
  request.set_token_id(token.info().id());
  request.set_token_secret(token.secret());
  request.set_ed25519_key(identity.ed25519_key);
  request.set_signature(enrolment_signature(identity.ed25519_key, token.info().id()));
  request.set_name(name);
  return request;
}

Result<NodeId> SimulatedAuthority::check_possession(const pb::EnrolRequest& request,
                                                    const std::string& key) const {
  if (request.signature() != enrolment_signature(request.ed25519_key(), request.token_id()) ||
      x25519_of(request.ed25519_key()) != key) {
    return fail(ErrorCode::kUnauthorised, "the signature does not prove possession of the key");
  }
  return id_of(request.ed25519_key());
}

pb::Certificate SimulatedAuthority::certify(pb::CertificateBody body) const {
  const std::string& key = coordinator_identity().ed25519_key;
  body.set_coordinator_key(key);
  pb::Certificate certificate;
  certificate.set_body(body.SerializeAsString());
  certificate.set_signature(signed_by(key, certificate.body()));
  return certificate;
}

Result<pb::CertificateBody> SimulatedAuthority::open(const pb::Certificate& certificate,
                                                     std::int64_t /*unix_ms*/) const {
  return open_certificate(certificate, coordinator_identity().ed25519_key);
}

// ---- Records ----

// Its key is a real one: hosts compute its X25519 form.
const Identity& coordinator_identity() {
  static const Identity kIdentity = [] {
    const auto real = protocol::Identity::from_seed(blake2b("coordinator").raw());
    return Identity{real->ed25519_key(), real->x25519_key(), real->node_id()};
  }();
  return kIdentity;
}

std::string SimulatedSigner::sign(std::string_view domain, std::string_view bytes) const {
  return signed_by(identity_.ed25519_key, std::string(domain).append(bytes));
}

bool is_signed_by(std::string_view key, std::string_view domain, std::string_view bytes,
                  std::string_view signature) {
  return signature == signed_by(std::string(key), std::string(domain).append(bytes));
}

Result<pb::CertificateBody> open_certificate(const pb::Certificate& certificate,
                                             std::string_view coordinator_key) {
  pb::CertificateBody body;
  if (certificate.signature() != signed_by(std::string(coordinator_key), certificate.body()) ||
      !body.ParseFromString(certificate.body()) || body.coordinator_key() != coordinator_key) {
    return fail(ErrorCode::kCorrupt, "certificate: not signed by this coordinator");
  }
  return body;
}

}  // namespace skerry::simulation
