#include "tests/simulation/authority.h"

#include "base/hash.h"
#include "protocol/validate.h"

namespace skerry::simulation {
namespace {

std::string signed_by(const std::string& key, const std::string& words) {
  return blake2b("one" + key + words).raw() + blake2b("two" + key + words).raw();
}

NodeId id_of(const std::string& ed25519_key) { return NodeId(blake2b(ed25519_key).hex().substr(0, 32)); }
std::string x25519_of(const std::string& ed25519_key) { return blake2b("x25519" + ed25519_key).raw(); }

}  // namespace

Identity identity_of(const std::string& secret) {
  Identity identity;
  identity.ed25519_key = blake2b("ed25519" + secret).raw();
  identity.x25519_key = x25519_of(identity.ed25519_key);
  identity.id = id_of(identity.ed25519_key);
  return identity;
}

pb::EnrolRequest enrol_request(const Identity& identity, const std::string& name,
                               const pb::TokenCreated& token) {
  pb::EnrolRequest request;
  *request.mutable_version() = protocol::own_version();
  request.set_id(1);
  request.set_token_id(token.info().id());
  request.set_token_secret(token.secret());
  request.set_ed25519_key(identity.ed25519_key);
  request.set_signature(signed_by(identity.ed25519_key, token.info().id()));
  request.set_name(name);
  return request;
}

Result<NodeId> SimulatedAuthority::check_possession(const pb::EnrolRequest& request,
                                                    const std::string& key) const {
  if (request.signature() != signed_by(request.ed25519_key(), request.token_id()) ||
      x25519_of(request.ed25519_key()) != key) {
    return fail(ErrorCode::kUnauthorised, "the signature does not prove possession of the key");
  }
  return id_of(request.ed25519_key());
}

pb::Certificate SimulatedAuthority::certify(pb::CertificateBody body) const {
  static const std::string kKey = blake2b("coordinator").raw();
  body.set_coordinator_key(kKey);
  pb::Certificate certificate;
  certificate.set_body(body.SerializeAsString());
  certificate.set_signature(signed_by(kKey, certificate.body()));
  return certificate;
}

}  // namespace skerry::simulation
