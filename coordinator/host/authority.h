// SPDX-License-Identifier: Apache-2.0
// The real Rng and Authority of a core.
#pragma once

#include "coordinator/core/core.h"
#include "protocol/identity.h"

namespace skerry::coordinator {

class SystemRng final : public Rng {
 public:
  void fill(std::span<unsigned char> out) override;
};

class IdentityAuthority final : public Authority {
 public:
  explicit IdentityAuthority(const protocol::Identity& identity) : identity_(identity) {}
  Result<NodeId> check_possession(const pb::EnrolRequest& request,
                                  const std::string& key) const override;
  pb::Certificate certify(pb::CertificateBody body) const override;
  Result<pb::CertificateBody> open(const pb::Certificate& certificate,
                                   std::int64_t unix_ms) const override;

 private:
  const protocol::Identity& identity_;
};

}  // namespace skerry::coordinator
