// SPDX-License-Identifier: Apache-2.0
#include "daemon/host/peer_gossip.h"

#include <algorithm>

#include "base/clean_text.h"
#include "base/log.h"
#include "base/text.h"
#include "daemon/core/objects.h"
#include "gossip/router_parts.h"
#include "protocol/limits.h"

namespace skerry::daemon {
namespace {

constexpr Duration kShutOut = std::chrono::minutes(10);
constexpr Duration kIdle =
    std::chrono::minutes(1);  // without a chunk: a connection that nobody needs may go
constexpr Duration kTellEvery = std::chrono::minutes(1);
constexpr std::size_t kRemembered = 8192;  // records that were found genuine
constexpr std::size_t kSought = 8;         // holders of one object

gossip::Config config_of(const PeerGossipParts& parts, const std::string& saved, Now now) {
  gossip::Config config = parts.pace;
  config.coordinator_key = parts.coordinator_key;
  config.certificate = parts.certificate;
  config.incarnation = gossip::incarnation_after(saved, now.unix_ms, parts.seed);
  config.seed = parts.seed;
  return config;
}

bool is_any(const std::string& host) { return host == "0.0.0.0" || host == "::"; }

// Of tcp://HOST:PORT.
protocol::HostPort host_and_port(const std::string& url) {
  constexpr std::string_view kScheme = "tcp://";
  if (!url.starts_with(kScheme)) return {};
  return protocol::parse_host_port(std::string_view(url).substr(kScheme.size()))
      .value_or(protocol::HostPort{});
}

}  // namespace

PeerGossip::PeerGossip(PeerGossipParts parts, const std::string& saved, Hooks hooks, Now now)
    : parts_(std::move(parts)),
      hooks_(std::move(hooks)),
      verifier_(parts_.coordinator_key, kRemembered, parts_.checks),
      gossip_(config_of(parts_, saved, now), parts_.identity, verifier_,
              gossip::load_table(saved, verifier_, {}, now), now) {
  // Until the coordinator has said it, this node is where it was.
  if (const gossip::Entry* own = table().find_node(gossip_.self(), now)) {
    seen_ = host_and_port(own->record->body.node().address()).host;
  }
  table().for_each(now, [&](const gossip::Entry& entry) {
    const gossip::Record& record = *entry.record;
    if (record.key.kind == gossip::Kind::kRevocation && !record.body.withdrawn()) {
      parts_.network.shut_out(record.key.subject, {}, Duration::max());
    }
    // An earlier process said it. What is still kept is repeated in time.
    if (record.key.kind == gossip::Kind::kExpert && record.key.author == gossip_.self() &&
        !record.body.withdrawn()) {
      said_experts_[{record.key.run, record.key.expert}];
    }
  });
}

void PeerGossip::misbehaved(const NodeId& peer, const std::string& why, Now now) {
  if (peer != coordinator()) shut_out(peer, now.boot + kShutOut, why);
}

void PeerGossip::shut_out(const NodeId& peer, Duration until, const std::string& why) {
  log_warning("a node is shut out", {{"node", peer}, {"why", why}});
  const bool was_connected = parts_.network.is_connected(peer);
  parts_.network.shut_out(peer, {}, until);
  if (was_connected) hooks_.gone(peer);
}

// ---- Connections ----

bool PeerGossip::poll(Now now) {
  return parts_.network.poll([&](protocol::PeerEvent event) { on_peer(std::move(event), now); });
}

void PeerGossip::on_peer(protocol::PeerEvent event, Now now) {
  if (const auto* connected = std::get_if<protocol::PeerConnected>(&event)) {
    hooks_.connected(connected->peer, connected->dialled);
  } else if (auto* message = std::get_if<protocol::PeerMessage>(&event)) {
    hooks_.received(message->peer, std::move(message->message));
  } else if (const auto* gone = std::get_if<protocol::PeerGone>(&event)) {
    hooks_.gone(gone->peer);
  } else {
    note_turned_away(std::get<protocol::PeerTurnedAway>(event), now);
  }
}

void PeerGossip::note_turned_away(const protocol::PeerTurnedAway& away, Now now) {
  ++turned_away_;
  if (now.boot < turned_away_told_ + kTellEvery) return;
  turned_away_told_ = now.boot;
  log_warning(
      "turned away at the address for peers",
      {{"address", away.address}, {"why", away.why}, {"times", std::exchange(turned_away_, 0)}});
}

void PeerGossip::carry_out(const gossip::Effects& effects, Now now) {
  news_ = news_ || !effects.news.empty();
  for (const gossip::Dial& each : effects.dials) dial(*each.node);
  for (const NodeId& peer : effects.releases) {
    if (now.boot - kIdle < hooks_.moved_at(peer)) continue;
    parts_.network.close(peer);
    hooks_.gone(peer);
  }
  for (const gossip::Misbehaved& each : effects.misbehaved) {
    if (each.peer == coordinator()) {
      log_warning("the coordinator broke the rules of gossip: " + each.reason);
    } else {
      shut_out(each.peer, now.boot + kShutOut, each.reason);
    }
  }
  for (const NodeId& node : effects.revoked) shut_out(node, Duration::max(), "it was revoked");
  for (const gossip::Report& each : effects.reports) {
    log_warning("a record is not to be believed", {{"author", each.author}, {"why", each.reason}});
  }
}

void PeerGossip::dial(const gossip::Record& node) {
  const Result<void> dialled =
      parts_.network.dial(node.body.node().address(), gossip::certified(node).ed25519_key());
  if (!dialled)
    log_debug("a node cannot be dialled",
              {{"node", node.key.author}, {"why", dialled.error().message}});
}

// ---- What is said ----

void PeerGossip::seen_as(const std::string& address) {
  if (!address.empty() && address.size() < protocol::kRecordTextBytes / 2) seen_ = address;
}

std::string PeerGossip::address() const {
  std::string listens = parts_.network.listens_at();
  if (listens.empty()) return {};
  if (!parts_.advertise.empty()) return "tcp://" + parts_.advertise;
  const protocol::HostPort own = host_and_port(listens);
  if (!is_any(own.host)) return listens;
  return seen_.empty() ? std::string() : protocol::tcp_url(seen_, own.port);
}

void PeerGossip::say(const pb::RecordBody& body, Now now) {
  const Result<void> said = gossip_.say(body, now);
  if (!said) log_warning("cannot be told to other nodes: " + said.error().message);
}

void PeerGossip::hold(const std::vector<KeptCheckpoint>& kept, const Beside& beside,
                      const std::vector<Hash>& objects, Now now) {
  pb::RecordBody body;
  pb::NodeRecord& node = *body.mutable_node();
  node.set_address(address());
  node.set_host_label(clean_text(parts_.host_label, protocol::kRecordTextBytes));
  for (const pb::Slot& slot : parts_.slots) *node.add_slots() = slot;
  std::set<Hash> named;
  const auto name = [&](const Hash& object) {
    if (named.size() >= protocol::kRecordHolds || !named.insert(object).second) return;
    node.mutable_holds()->append(object.raw().substr(0, gossip::kHoldBytes));
  };
  const std::set<Hash> whole(objects.begin(), objects.end());
  std::vector<KeptCheckpoint> held;
  for (const KeptCheckpoint& each : kept) {
    if (whole.contains(name_of(each.object))) held.push_back(each);
  }
  for (const KeptCheckpoint& each : held) name(name_of(each.object));
  for (const pb::ObjectRef& file : beside.files) {
    if (whole.contains(name_of(file))) name(name_of(file));
  }
  std::set<Hash> others;  // each of these is with many nodes
  for (const pb::ObjectRef& file : beside.others) others.insert(name_of(file));
  for (const Hash& object : objects) {
    if (!others.contains(object)) name(object);
  }
  for (const Hash& object : objects) name(object);
  if (std::string bytes = body.SerializeAsString(); bytes != said_) {
    said_ = std::move(bytes);
    say(body, now);
  }
  say_experts(held, now);
}

void PeerGossip::say_experts(const std::vector<KeptCheckpoint>& kept, Now now) {
  std::map<ExpertId, std::string> now_said;
  for (const KeptCheckpoint& each : kept) {
    pb::RecordBody body;
    pb::ExpertRecord& expert = *body.mutable_expert();
    expert.set_run(each.expert.run.str());
    expert.set_expert(each.expert.index);
    expert.set_epoch(each.epoch.value());
    expert.set_step(each.step);
    *expert.mutable_checkpoint() = each.object;
    expert.set_loss(each.loss);
    // What only the coordinator knows goes along, so that this record suffices
    // where that one is lost.
    const gossip::Key told{
        gossip::Kind::kExpert, coordinator(), each.expert.run, each.expert.index, {}};
    if (const gossip::Entry* entry = table().find(told, now)) {
      const pb::ExpertRecord& by_coordinator = entry->record->body.expert();
      expert.set_share(by_coordinator.share());
      if (by_coordinator.has_statistics())
        *expert.mutable_statistics() = by_coordinator.statistics();
    }
    std::string& bytes = now_said[each.expert];
    bytes = body.SerializeAsString();
    const auto said = said_experts_.find(each.expert);
    if (said == said_experts_.end() || said->second != bytes) say(body, now);
  }
  for (const auto& [expert, bytes] : said_experts_) {
    if (now_said.contains(expert)) continue;
    pb::RecordBody body;
    body.mutable_expert()->set_run(expert.run.str());
    body.mutable_expert()->set_expert(expert.index);
    body.set_withdrawn(true);
    say(body, now);
  }
  said_experts_ = std::move(now_said);
}

// ---- What is learnt ----

std::vector<NodeId> PeerGossip::seek(const Hash& object, Now now) {
  std::vector<NodeId> found;
  for (const gossip::Holder& holder : gossip::holders_of(table(), object.raw(), now)) {
    if (holder.node == gossip_.self()) continue;
    const bool connected = parts_.network.is_connected(holder.node);
    if (!connected && holder.address.empty()) continue;  // it must dial us
    found.push_back(holder.node);
    if (!connected) dial(*holder.record);
    if (found.size() >= kSought) break;
  }
  return found;
}

PeerGossip::Beside PeerGossip::beside(const std::set<ExpertId>& experts, Now now) const {
  Beside beside;
  std::set<std::string> named;
  const auto add = [&](const pb::ObjectRef& file, std::vector<pb::ObjectRef>& files) {
    if (named.insert(file.manifest()).second) files.push_back(file);
  };
  const auto statistics_of = [&](const ExpertId& id) -> const pb::ObjectRef* {
    const gossip::Entry* entry =
        table().find({gossip::Kind::kExpert, coordinator(), id.run, id.index, {}}, now);
    if (entry == nullptr || !entry->record->body.expert().has_statistics()) return nullptr;
    return &entry->record->body.expert().statistics();
  };
  std::map<RunId, const pb::RunRecord*> runs;
  for (const ExpertId& id : experts) {
    const gossip::Entry* run = table().find_run(id.run, now);
    if (run == nullptr) continue;
    if (run->record->body.withdrawn()) {
      beside.deleted.insert(id.run.str());
      continue;
    }
    const pb::RunRecord& about = run->record->body.run();
    runs[id.run] = &about;
    add(about.spec(), beside.files);
    if (about.has_router()) add(about.router(), beside.files);
    if (const pb::ObjectRef* statistics = statistics_of(id)) add(*statistics, beside.files);
  }
  for (const auto& [id, about] : runs) {
    std::uint64_t bytes = 0;
    for (ExpertIndex index = 0; index < about->experts(); ++index) {
      const pb::ObjectRef* statistics = statistics_of({id, index});
      if (statistics == nullptr || named.contains(statistics->manifest())) continue;
      bytes += statistics->bytes();
      if (bytes > kOthersBytes) break;
      add(*statistics, beside.others);
    }
  }
  return beside;
}

}  // namespace skerry::daemon
