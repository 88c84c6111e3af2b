// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/gossip_enemies.h"

#include "base/text.h"
#include "gossip/router_parts.h"
#include "protocol/limits.h"
#include "protocol/validate.h"

namespace skerry::simulation {
namespace {

constexpr std::int64_t kCertifiedMs = 365LL * 86'400'000;

pb::Certificate certified(const Identity& identity, std::int64_t unix_ms) {
  pb::CertificateBody body;
  body.set_ed25519_key(identity.ed25519_key);
  body.set_role(pb::ROLE_NODE);
  body.set_expires_unix_ms(unix_ms + kCertifiedMs);
  return SimulatedAuthority().certify(body);
}

}  // namespace

class GossipEnemies::Liar {
 public:
  Liar(GossipGround& ground, const Identity& identity, std::string name)
      : ground_(ground),
        end_(ground.mesh, {.address = std::move(name),
                           .id = identity.id,
                           .listens = false,
                           .admits = {},
                           .boot = [] { return Duration{}; },
                           .wake = [this] { end_.poll([](const protocol::PeerEvent&) {}); },
                           .overhears = {}}) {}

  // Says hello as a peer of an older version that knows no maps, so that the
  // victim asks it for chunks. It sends none.
  bool hand(const DaemonMachine& victim, const pb::SignedRecord& record) {
    if (!end_.is_connected(victim.id()) && !ground_.mesh.connect(end_, victim.name())) return false;
    pb::BlobMessage hello;
    *hello.mutable_hello()->mutable_version() = protocol::own_version();
    pb::GossipMessage gossip;
    *gossip.add_records() = record;
    pb::BlobMessage message;
    message.set_gossip(gossip.SerializeAsString());
    return say(victim, hello) && say(victim, message);
  }

 private:
  bool say(const DaemonMachine& victim, const pb::BlobMessage& message) {
    return end_.send(victim.id(), message.SerializeAsString()).has_value();
  }

  GossipGround& ground_;
  MeshEnd end_;
};

GossipEnemies::GossipEnemies(Cluster& cluster) : cluster_(cluster) {}
GossipEnemies::~GossipEnemies() = default;

bool GossipEnemies::hand_out(Dice& dice, const pb::SignedRecord& record) {
  World& world = cluster_.world();
  constexpr std::size_t kAtOnce = 8;
  if (liars_.size() >= kAtOnce) liars_.erase(liars_.begin());
  const std::string name = text("liar-", ++count_);
  liars_.push_back(std::make_unique<Liar>(*world.gossip, identity_of(name), name));
  world.trace.name_node(identity_of(name).id, name);
  const std::uint64_t first = dice.between(0, cluster_.daemons() - 1);
  const std::uint64_t victims = dice.chance(0.5) ? 1 : dice.between(1, cluster_.daemons());
  bool is_heard = false;
  for (std::uint64_t i = 0; i < victims; ++i) {
    const DaemonMachine& victim = cluster_.daemon((first + i) % cluster_.daemons());
    if (victim.records() != nullptr) is_heard = liars_.back()->hand(victim, record) || is_heard;
  }
  return is_heard;
}

// Of the whole history, or of the newest versions only.
gossip::RecordPtr GossipEnemies::pick(Dice& dice, bool newest) const {
  const auto& history = cluster_.world().gossip->rules.history();
  if (history.empty()) return nullptr;
  const auto key =
      std::next(history.begin(), static_cast<std::ptrdiff_t>(dice.between(0, history.size() - 1)));
  return newest ? key->second.back() : dice.pick(key->second);
}

pb::SignedRecord GossipEnemies::node_record(Dice& dice, const Key& key) const {
  const std::int64_t unix_ms = cluster_.coordinator().wall_ms();
  pb::RecordBody body;
  body.mutable_node()->set_address("tcp://10.0.0.1:7610");
  body.mutable_node()->set_host_label("elsewhere");
  body.set_incarnation(static_cast<std::uint64_t>(unix_ms));
  body.set_counter(1 + dice.between(0, 1000));
  body.set_issued_unix_ms(unix_ms);
  body.set_lifetime_ms(
      static_cast<std::uint64_t>(cluster_.world().gossip->pace.node_lifetime / milliseconds(1)));
  return gossip::sign_record(body, SimulatedSigner(key.identity), key.certificate)
      .value_or(pb::SignedRecord());
}

bool GossipEnemies::forged_record(Dice& dice) {
  const gossip::RecordPtr genuine = pick(dice, true);
  if (genuine == nullptr) return false;
  if (dice.chance(0.3)) {  // certified, and says what only the coordinator may
    const Identity enemy = identity_of(text("enemy ", dice.u64()));
    pb::RecordBody body;
    body.mutable_revocation()->set_node_id(
        cluster_.daemon(dice.between(0, cluster_.daemons() - 1)).id().str());
    body.set_incarnation(1);
    body.set_counter(1);
    body.set_issued_unix_ms(cluster_.coordinator().wall_ms());
    body.set_lifetime_ms(3'600'000);
    const auto wire = gossip::sign_record(body, SimulatedSigner(enemy),
                                          certified(enemy, cluster_.coordinator().wall_ms()));
    return wire && hand_out(dice, *wire);
  }
  pb::SignedRecord wire = genuine->wire;
  pb::RecordBody body = genuine->body;
  body.set_counter(body.counter() + 1 + dice.between(0, 100));
  if (body.has_node()) body.mutable_node()->set_host_label("forged");
  wire.set_body(body.SerializeAsString());
  return hand_out(dice, wire);
}

bool GossipEnemies::old_record(Dice& dice) {
  const gossip::RecordPtr record = pick(dice, false);
  return record != nullptr && hand_out(dice, record->wire);
}

bool GossipEnemies::revoked_record(Dice& dice) {
  return !revoked_.empty() && hand_out(dice, node_record(dice, dice.pick(revoked_)));
}

bool GossipEnemies::unknown_signer(Dice& dice) {
  Key unknown{identity_of(text("unknown ", dice.u64())), {}};
  unknown.certificate = certified(unknown.identity, cluster_.coordinator().wall_ms());
  if (dice.chance(0.5)) {  // by another coordinator
    unknown.certificate.set_signature(
        SimulatedSigner(identity_of("another coordinator")).sign("", unknown.certificate.body()));
  } else {  // by another's certificate
    const gossip::RecordPtr genuine = pick(dice, true);
    if (genuine == nullptr || genuine->by_coordinator) return false;
    unknown.certificate = genuine->wire.certificate();
  }
  return hand_out(dice, node_record(dice, unknown));
}

bool GossipEnemies::two_contents(Dice& dice) {
  const std::int64_t unix_ms = cluster_.coordinator().wall_ms();
  const Identity enemy = identity_of(text("two-faced ", dice.u64()));
  const pb::Certificate certificate = certified(enemy, unix_ms);
  cluster_.world().trace.name_node(enemy.id, "two-faced");
  cluster_.world().gossip->rules.signs_two_contents(enemy.id);
  bool is_heard = false;
  for (const char* const host : {"here", "there"}) {
    pb::RecordBody body;
    body.mutable_node()->set_host_label(host);
    body.set_incarnation(static_cast<std::uint64_t>(unix_ms));
    body.set_counter(1);
    body.set_issued_unix_ms(unix_ms);
    body.set_lifetime_ms(protocol::kNodeLifetimeMs);
    const auto wire = gossip::sign_record(body, SimulatedSigner(enemy), certificate);
    is_heard = (wire && hand_out(dice, *wire)) || is_heard;
  }
  return is_heard;
}

void GossipEnemies::key_was_revoked(const Identity& identity, const pb::Certificate& certificate) {
  cluster_.world().gossip->rules.key_is_shared(identity.id);
  revoked_.push_back({identity, certificate});
}

}  // namespace skerry::simulation
