// SPDX-License-Identifier: Apache-2.0
// Authors and facts for tests of gossip.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "base/text.h"
#include "gossip/gossip.h"
#include "gossip/router_parts.h"
#include "protocol/validate_gossip.h"

namespace skerry::gossip {

using namespace std::chrono_literals;

template <class T>
T value_of(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

inline protocol::Identity identity_of(std::uint64_t number) {
  return value_of(protocol::Identity::from_seed(blake2b(text("identity ", number)).raw()));
}
inline const protocol::Identity& the_coordinator() {
  static const protocol::Identity coordinator = identity_of(0);
  return coordinator;
}
inline pb::Certificate certificate_of(const protocol::Identity& identity,
                                      std::int64_t expires_unix_ms = 1LL << 45,
                                      pb::Role role = pb::ROLE_NODE) {
  pb::CertificateBody body;
  body.set_ed25519_key(identity.ed25519_key());
  body.set_role(role);
  body.set_name("rented");
  body.set_expires_unix_ms(expires_unix_ms);
  return protocol::issue_certificate(the_coordinator(), body);
}

inline std::string hash_of(std::string_view what) { return blake2b(what).raw(); }
inline void name_object(pb::ObjectRef& object, std::string_view what) {
  object.set_manifest(hash_of(what));
  object.set_manifest_bytes(100);
  object.set_bytes(1000);
}

inline pb::RecordBody node_fact(std::string_view address,
                                const std::vector<std::string>& holds = {}) {
  pb::RecordBody body;
  body.mutable_node()->set_address(std::string(address));
  body.mutable_node()->set_host_label("host");
  pb::Slot& slot = *body.mutable_node()->add_slots();
  slot.set_device("NVIDIA GeForce RTX 4090");
  slot.set_memory_bytes(std::uint64_t{24} << 30);
  for (const std::string& each : holds)
    body.mutable_node()->mutable_holds()->append(hash_of(each).substr(0, kHoldBytes));
  return body;
}
inline pb::RecordBody run_fact(const std::string& run, std::uint32_t experts) {
  pb::RecordBody body;
  body.mutable_run()->set_run(run);
  body.mutable_run()->set_name("birds");
  body.mutable_run()->set_dataset("birds");
  body.mutable_run()->set_experts(experts);
  name_object(*body.mutable_run()->mutable_spec(), "spec");
  name_object(*body.mutable_run()->mutable_router(), "router");
  return body;
}
inline pb::RecordBody expert_fact(const std::string& run, ExpertIndex index, std::uint64_t step,
                                  const std::string& checkpoint, std::uint64_t epoch = 1) {
  pb::RecordBody body;
  body.mutable_expert()->set_run(run);
  body.mutable_expert()->set_expert(index);
  body.mutable_expert()->set_round(step / 10);
  body.mutable_expert()->set_step(step);
  body.mutable_expert()->set_epoch(epoch);
  body.mutable_expert()->set_loss(0.5);
  body.mutable_expert()->set_share(0.25);
  name_object(*body.mutable_expert()->mutable_checkpoint(), checkpoint);
  name_object(*body.mutable_expert()->mutable_statistics(), text("statistics ", index));
  return body;
}
inline pb::RecordBody revocation_fact(const NodeId& node) {
  pb::RecordBody body;
  body.mutable_revocation()->set_node_id(node.str());
  return body;
}
inline pb::RecordBody withdrawn(pb::RecordBody body) {
  body.set_withdrawn(true);
  return body;
}

inline constexpr std::int64_t kToday = 1'760'000'000'000;
inline Now at(Duration boot, Duration clock_offset = {}) {
  const Duration wall = boot + clock_offset;
  return {boot, kToday + std::chrono::duration_cast<std::chrono::milliseconds>(wall).count()};
}

// Signs like a core, but signs any body.
struct Author {
  explicit Author(std::uint64_t number)
      : identity(identity_of(number)),
        certificate(number == 0 ? pb::Certificate() : certificate_of(identity)) {}

  NodeId id() const { return identity.node_id(); }
  pb::SignedRecord sign(pb::RecordBody body, std::uint64_t counter, Now now = at({}),
                        Duration lifetime = 24h, std::uint64_t incarnation = 1) const {
    body.set_incarnation(incarnation);
    body.set_counter(counter);
    body.set_issued_unix_ms(now.unix_ms);
    body.set_lifetime_ms(static_cast<std::uint64_t>(lifetime / 1ms));
    return value_of(sign_record(std::move(body), identity, certificate));
  }

  protocol::Identity identity;
  pb::Certificate certificate;
};

inline RecordPtr genuine(Verifier& verifier, const pb::SignedRecord& wire, Now now = at({})) {
  return value_of(verifier.check(value_of(verifier.open(wire)), now.unix_ms));
}

}  // namespace skerry::gossip
