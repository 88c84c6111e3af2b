// SPDX-License-Identifier: Apache-2.0
// Identities of a simulation. Keys and signatures have the length of real ones
// and convince every party that follows the rules, but cost nothing.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "coordinator/core/core.h"
#include "protocol/identity.h"

namespace skerry::simulation {

struct Identity {
  std::string ed25519_key;
  std::string x25519_key;
  NodeId id;
};

// The same text gives the same identity.
Identity identity_of(const std::string& secret);

pb::EnrolRequest enrol_request(const Identity& identity, const std::string& name,
                               const pb::TokenCreated& token);

// Signs records as that identity, at the cost of a hash.
class SimulatedSigner final : public protocol::Signer {
 public:
  explicit SimulatedSigner(Identity identity) : identity_(std::move(identity)) {}
  const std::string& ed25519_key() const override { return identity_.ed25519_key; }
  NodeId node_id() const override { return identity_.id; }
  std::string sign(std::string_view domain, std::string_view bytes) const override;

 private:
  Identity identity_;
};

// Of the coordinator that SimulatedAuthority certifies for.
const Identity& coordinator_identity();

// What a signer's signatures and an authority's certificates are checked by.
bool is_signed_by(std::string_view key, std::string_view domain, std::string_view bytes,
                  std::string_view signature);
// The body, if this coordinator signed it.
Result<pb::CertificateBody> open_certificate(const pb::Certificate& certificate,
                                             std::string_view coordinator_key);

class SimulatedAuthority final : public coordinator::Authority {
 public:
  Result<NodeId> check_possession(const pb::EnrolRequest& request,
                                  const std::string& key) const override;
  pb::Certificate certify(pb::CertificateBody body) const override;
  Result<pb::CertificateBody> open(const pb::Certificate& certificate,
                                   std::int64_t unix_ms) const override;
};

}  // namespace skerry::simulation
