// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/gossip_side.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "gossip/router_parts.h"
#include "protocol/validate_gossip.h"

namespace skerry::simulation {
namespace {

// Of a node's records: so short that they expire within a seed, and are signed
// anew a few times.
constexpr Duration kNodeLifetime = seconds(120);
// Of the coordinator's: signed anew within a seed. They outlive it where it is
// killed for good in the end.
constexpr Duration kCoordinatorLifetime = seconds(600);
constexpr std::size_t kCoordinatorConnections = 1000;
// What a process has to say is put together that often, in looks. The programs
// do it with each, which would cost too much.
constexpr unsigned kSayEvery = 3;

gossip::SignatureChecks checks() {
  return {.of_key = is_signed_by,
          .of_certificate = [](const pb::Certificate& certificate, std::string_view key,
                               std::int64_t /*unix_ms*/) {
            return open_certificate(certificate, key);
          }};
}

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

// What a message brings that is refused, told before it is.
void tell_refusals(World& world, const GossipProcess& process, const GossipRules& rules,
                   const gossip::Table& table, const pb::BlobMessage& message) {
  const auto gossip = protocol::parse_gossip_message(message.gossip());
  if (!gossip) return;
  for (const pb::SignedRecord& wire : gossip->records()) {
    const auto record = gossip::open_record(wire, coordinator_identity().id);
    if (!record) continue;
    const std::string why =
        why_refused(table.judge(*record, std::chrono::milliseconds(wire.age_ms()), process.now()));
    if (why.empty()) continue;
    world.trace.line(
        [&] { return text(process.name, " refuses ", rules.describe(*record), ": ", why); });
  }
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

// ---- A daemon's ----

DaemonGossip::DaemonGossip(World& world, GossipGround& ground, GossipProcess process,
                           Settings settings)
    : world_(world),
      ground_(ground),
      process_(std::move(process)),
      signer_(settings.identity),
      end_(ground.mesh,
           {.address = process_.name,
            .id = settings.identity.id,
            .listens = settings.listens,
            .admits = {},
            .boot = [this] { return process_.now().boot; },
            .wake = [this] { process_.deliver([this] { poll(); }); },
            .overhears =
                ground.rules.tells
                    ? [this](const NodeId&, const pb::BlobMessage& message) { overhear(message); }
                    : std::function<void(const NodeId&, const pb::BlobMessage&)>()}),
      peer_gossip_(make(std::move(settings))) {}

DaemonGossip::~DaemonGossip() { ground_.rules.stopped(process_.name); }

daemon::PeerGossip DaemonGossip::make(Settings settings) {
  return daemon::PeerGossip(
      {.identity = signer_,
       .coordinator_key = coordinator_identity().ed25519_key,
       .certificate = std::move(settings.certificate),
       .network = end_,
       .advertise = {},
       .host_label = settings.host,
       .slots = std::move(settings.slots),
       .seed = settings.seed,
       .pace = ground_.pace,
       .checks = checks()},
      settings.saved,
      {.connected =
           [this](const NodeId& node, bool dialled) {
             peer_gossip_.gossip().connected(node, dialled, process_.now());
           },
       .received = [this](const NodeId& node,
                          const pb::BlobMessage& message) { hear(node, message); },
       .gone = [this](const NodeId& node) { peer_gossip_.gossip().disconnected(node); },
       .moved_at = [](const NodeId&) { return Duration::min(); }},
      process_.now());
}

std::string DaemonGossip::save() const {
  ground_.rules.saved(process_.name, signer_.node_id());
  return peer_gossip_.save(process_.now());
}

void DaemonGossip::overhear(const pb::BlobMessage& message) {
  tell_refusals(world_, process_, ground_.rules, table(), message);
}

void DaemonGossip::hear(const NodeId& node, const pb::BlobMessage& message) {
  const auto gossip = protocol::parse_gossip_message(message.gossip());
  if (gossip) return peer_gossip_.gossip().received(node, *gossip, process_.now());
  gossip::Effects effects;
  effects.misbehaved.push_back({node, gossip.error().message});
  peer_gossip_.carry_out(effects, process_.now());
}

void DaemonGossip::poll() {
  peer_gossip_.poll(process_.now());
  peer_gossip_.gossip().tick(process_.now());
  const gossip::Effects effects = peer_gossip_.gossip().take_effects();
  for (const gossip::Send& each : effects.sends) {
    pb::BlobMessage message;
    message.set_gossip(each.message.SerializeAsString());
    [[maybe_unused]] const Result<void> sent = end_.send(each.peer, message.SerializeAsString());
  }
  peer_gossip_.carry_out(effects, process_.now());
  ground_.rules.stepped({.name = process_.name,
                         .self = signer_.node_id(),
                         .table = table(),
                         .links = end_.links(),
                         .links_most = ground_.pace.peers_most + 1,
                         .now = process_.now()});
}

// As the daemon's host does (daemon/host/host_peers.cc).
std::vector<daemon::Event> DaemonGossip::look(const daemon::Core& core,
                                              const std::map<Hash, daemon::ObjectKind>& objects) {
  if (!hears_coordinator()) {
    [[maybe_unused]] const Result<void> dialled =
        end_.dial(text("tcp://", kCoordinatorAddress), coordinator_identity().ed25519_key);
  }
  poll();
  if (looks_++ % kSayEvery != 0) return {};
  std::string kept;
  for (const daemon::KeptCheckpoint& each : core.kept()) kept += each.object.manifest();
  std::vector<Hash> whole;
  for (const auto& [object, kind] : objects) whole.push_back(object);
  const bool kept_changed = std::exchange(kept_, kept) != kept;
  const bool objects_changed = std::exchange(objects_, whole) != whole;
  std::vector<daemon::Event> events;
  if (!peer_gossip_.take_news() && !kept_changed && !objects_changed) return events;
  std::set<ExpertId> experts;
  for (const Hash& object : objects_) {
    const Object* known = world_.library.find(object);
    if (known != nullptr && known->checkpoint)
      experts.insert({known->facts.run, known->facts.expert});
  }
  for (const daemon::KeptCheckpoint& each : core.kept()) experts.insert(each.expert);
  const std::vector<daemon::KeptCheckpoint> newest_first(core.kept().rbegin(), core.kept().rend());
  daemon::PeerGossip::Beside beside = peer_gossip_.beside(experts, process_.now());
  peer_gossip_.hold(newest_first, beside, objects_, process_.now());
  std::ranges::move(beside.others, std::back_inserter(beside.files));
  for (const std::string& run : beside.deleted) events.emplace_back(daemon::RunGone{run});
  for (const pb::ObjectRef& file : beside.files) world_.library.add_made(file);
  const auto same = [](const pb::ObjectRef& a, const pb::ObjectRef& b) {
    return a.manifest() == b.manifest();
  };
  if (!std::ranges::equal(beside.files, beside_, same)) {
    beside_ = beside.files;
    events.emplace_back(daemon::HoldFiles{std::move(beside.files)});
  }
  return events;
}

std::vector<NodeId> DaemonGossip::seek(const Hash& object) {
  std::vector<NodeId> found = peer_gossip_.seek(object, process_.now());
  std::erase_if(found, [&](const NodeId& node) { return !end_.is_connected(node); });
  return found;
}

// ---- The coordinator's ----

CoordinatorGossip::CoordinatorGossip(World& world, GossipGround& ground, GossipProcess process, Admits admits,
                                     std::uint64_t seed, const std::string& saved)
    : world_(world),
      ground_(ground),
      process_(std::move(process)),
      admits_(std::move(admits)),
      signer_(coordinator_identity()),
      end_(
          ground.mesh,
          {.address = process_.name,
           .id = coordinator_identity().id,
           .listens = true,
           .admits = admits_,
           .boot = [this] { return process_.now().boot; },
           .wake = [this] { process_.deliver([this] { poll(); }); },
           .overhears =
               ground.rules.tells
                   ? [this](const NodeId&,
                            const pb::BlobMessage&
                                message) { tell_refusals(world_, process_, ground_.rules, table(), message); }
                   : std::function<void(const NodeId&, const pb::BlobMessage&)>()}),
      publisher_(signer_, kCoordinatorConnections, seed, saved, process_.now(), {ground.pace, checks()}) {}

CoordinatorGossip::~CoordinatorGossip() { ground_.rules.stopped(process_.name); }

std::string CoordinatorGossip::save() const {
  ground_.rules.saved(process_.name, signer_.node_id());
  return publisher_.save(process_.now());
}

void CoordinatorGossip::on_peer(const protocol::PeerEvent& event) {
  const Now now = process_.now();
  if (const auto* connected = std::get_if<protocol::PeerConnected>(&event)) {
    peers_.insert(connected->peer);
    publisher_.talk().connected(connected->peer, connected->dialled, now);
  } else if (const auto* heard = std::get_if<protocol::PeerMessage>(&event)) {
    const auto message = protocol::parse_gossip_message(heard->message.gossip());
    if (message) return publisher_.talk().received(heard->peer, *message, now);
    end_.close(heard->peer);
    publisher_.talk().disconnected(heard->peer);
  } else if (const auto* gone = std::get_if<protocol::PeerGone>(&event)) {
    peers_.erase(gone->peer);
    publisher_.talk().disconnected(gone->peer);
  }
}

void CoordinatorGossip::poll() {
  end_.poll([this](const protocol::PeerEvent& event) { on_peer(event); });
  publisher_.talk().tick(process_.now());
  gossip::Effects effects = publisher_.talk().take_effects();
  for (const gossip::Send& each : effects.sends) {
    pb::BlobMessage message;
    message.set_gossip(each.message.SerializeAsString());
    [[maybe_unused]] const Result<void> sent = end_.send(each.peer, message.SerializeAsString());
  }
  for (const gossip::Misbehaved& each : effects.misbehaved) {
    end_.close(each.peer);
    publisher_.talk().disconnected(each.peer);
    peers_.erase(each.peer);
  }
  ground_.rules.stepped({.name = process_.name,
                         .self = signer_.node_id(),
                         .table = table(),
                         .links = end_.links(),
                         .links_most = kCoordinatorConnections,
                         .now = process_.now()});
}

std::vector<NodeId> CoordinatorGossip::holders(const Hash& object) {
  std::vector<NodeId> connected;
  for (const gossip::Holder& holder : gossip::holders_of(table(), object.raw(), now())) {
    if (peers_.contains(holder.node)) connected.push_back(holder.node);
  }
  return connected;
}

// As the coordinator's host does: records speak of what is durable only (S7).
std::optional<coordinator::RecordsReceived> CoordinatorGossip::look(const coordinator::Core& core) {
  for (const NodeId& peer : std::set(peers_)) {
    if (admits_(peer)) continue;
    end_.close(peer);
    publisher_.talk().disconnected(peer);
    peers_.erase(peer);
  }
  if (!facts_ && core.last_batch() != told_batch_ && looks_++ % kSayEvery == 0)
    facts_ = Facts{core.last_batch(), core.run_facts(), core.deleted_runs(), core.revoked()};
  if (facts_ && core.persisted_batch() >= facts_->batch) {
    publisher_.tell(facts_->runs, facts_->deleted, facts_->revoked, process_.now());
    told_batch_ = facts_->batch;
    facts_.reset();
  }
  publisher_.talk().recall(core.recalls());
  poll();
  return publisher_.hear(process_.now());
}

}  // namespace skerry::simulation
