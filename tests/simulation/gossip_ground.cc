// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/gossip_ground.h"

#include "base/text.h"
#include "protocol/validate.h"
#include "protocol/validate_gossip.h"

namespace skerry::simulation {
namespace {

// Of a node's records: so short that they expire within a seed, and are signed
// anew a few times.
constexpr Duration kNodeLifetime = seconds(120);
// Of the coordinator's: signed anew within a seed. They outlive it where it is
// killed for good in the end.
constexpr Duration kCoordinatorLifetime = seconds(600);

const char* why_refused(gossip::Verdict verdict) {
  switch (verdict) {
    case gossip::Verdict::kOlder:
      return "it is older than what is held";
    case gossip::Verdict::kDead:
      return "it is over";
    case gossip::Verdict::kRevoked:
      return "its author is revoked";
    case gossip::Verdict::kNoRun:
      return "its run is not known";
    case gossip::Verdict::kTooSoon:
      return "it comes too soon after the last";
    case gossip::Verdict::kUnimportant:
      return "there is no room";
    case gossip::Verdict::kNew:
    case gossip::Verdict::kNewer:
    case gossip::Verdict::kHeld:
      return "";
  }
  return "";
}

}  // namespace

gossip::Config GossipGround::simulated_pace() {
  gossip::Config pace;
  // With so few nodes, and so many of them cut off at a time, what was missed
  // is looked for oftener.
  pace.round = seconds(3);
  pace.digest_rounds = 8;
  pace.coordinator_rounds = 8;
  pace.update_least = seconds(20);
  pace.node_lifetime = kNodeLifetime;
  pace.coordinator_lifetime = kCoordinatorLifetime;
  pace.ban = seconds(60);
  pace.dial_again = seconds(20);
  return pace;
}

gossip::Config silent_pace() {
  gossip::Config pace;
  pace.round = std::chrono::hours(24);
  pace.update_least = std::chrono::hours(24);
  return pace;
}

gossip::SignatureChecks simulated_checks() {
  return {.of_key = is_signed_by,
          .of_certificate = [](const pb::Certificate& certificate, std::string_view key,
                               std::int64_t /*unix_ms*/) {
            return open_certificate(certificate, key);
          }};
}

void tell_refusals(World& world, const std::string& name, const gossip::Table& table, Now now,
                   std::string_view blob_message) {
  const auto message = protocol::parse_blob_message(blob_message);
  const auto gossip = message ? protocol::parse_gossip_message(message->gossip()) : message.error();
  if (!gossip) return;
  for (const pb::SignedRecord& wire : gossip->records()) {
    const auto record = gossip::open_record(wire, coordinator_identity().id);
    if (!record) continue;
    const std::string why =
        why_refused(table.judge(*record, std::chrono::milliseconds(wire.age_ms()), now));
    if (why.empty()) continue;
    world.trace.line(
        [&] { return text(name, " refuses ", world.gossip->rules.describe(*record), ": ", why); });
  }
}

}  // namespace skerry::simulation
