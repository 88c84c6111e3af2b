// SPDX-License-Identifier: Apache-2.0
#include "coordinator/host/authority.h"

#include <sys/random.h>

#include "protocol/enrol.h"

namespace skerry::coordinator {

void SystemRng::fill(std::span<unsigned char> out) {
  while (!out.empty()) {
    const ssize_t drawn = getrandom(out.data(), out.size(), 0);
    if (drawn < 0) continue;  // interrupted
    out = out.subspan(static_cast<std::size_t>(drawn));
  }
}

Result<NodeId> IdentityAuthority::check_possession(const pb::EnrolRequest& request,
                                                   const std::string& key) const {
  TRY(protocol::check_enrol_request(request, identity_.x25519_key(), key));
  return protocol::node_id(request.ed25519_key());
}

pb::Certificate IdentityAuthority::certify(pb::CertificateBody body) const {
  return protocol::issue_certificate(identity_, std::move(body));
}

Result<pb::CertificateBody> IdentityAuthority::open(const pb::Certificate& certificate,
                                                    std::int64_t unix_ms) const {
  return protocol::verify_certificate(certificate, identity_.ed25519_key(), unix_ms);
}

}  // namespace skerry::coordinator
