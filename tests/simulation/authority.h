// Identities of a simulation: keys and signatures that are as long as the real ones and prove as much to whoever plays
// by the rules, without their cost.
#pragma once

#include <string>

#include "coordinator/core.h"

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

class SimulatedAuthority final : public coordinator::Authority {
 public:
  Result<NodeId> check_possession(const pb::EnrolRequest& request, const std::string& key) const override;
  pb::Certificate certify(pb::CertificateBody body) const override;
};

}  // namespace skerry::simulation
