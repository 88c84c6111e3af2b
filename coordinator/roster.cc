// Connections and what nodes say of themselves: Hello, heartbeats, closing.
#include "base/clean_text.h"
#include "base/planted.h"
#include "base/text.h"
#include "coordinator/keys.h"
#include "coordinator/machine.h"
#include "protocol/limits.h"

namespace skerry::coordinator {
namespace {

constexpr std::size_t kSuperseded = 8;   // incarnations remembered
constexpr std::size_t kNamesTold = 500;  // bytes, of nodes that are forgotten

Result<void> check_version(const pb::Version& version) {
  const auto distance = static_cast<std::int64_t>(version.minor()) - protocol::kVersionMinor;
  if (version.major() == protocol::kVersionMajor && distance >= -1 && distance <= 1) return {};
  return fail(ErrorCode::kInvalid,
              text("protocol ", version.major(), ".", version.minor(),
                   " is not spoken here: this coordinator speaks ", protocol::kVersionMajor, ".",
                   protocol::kVersionMinor, " and one minor version away; upgrade the older"));
}

}  // namespace

void Machine::hello(Node& node, const Received& event) {
  const pb::Hello& hello = event.request.hello();
  const auto refuse = [&](const Error& error) { reply_error(event.connection, event.request.id(), error); };
  if (auto spoken = check_version(hello.version()); !spoken) return refuse(spoken.error());
  if (node.is_node()) {
    if (hello.incarnation() == 0 || hello.slots().empty()) {
      return refuse(fail(ErrorCode::kInvalid, "a node says its incarnation and slots"));
    }
    const auto superseded = std::ranges::find(node.superseded, hello.incarnation());
    // A killed process's Hello may come late and take the place of its living successor. It never beats.
    const bool successor_lives =
        !node.connection.empty() && node.connection != event.connection && node.sequence > 0;
    if (superseded != node.superseded.end() && !successor_lives) {
      node.superseded.erase(superseded);
    } else if (superseded != node.superseded.end()) {
      return refuse(
          fail(ErrorCode::kUnauthorised,
               "another process with this node's key has taken its place; is the data folder in use twice?"));
    }
  }
  if (!peers.contains(event.connection)) {
    const NodeId id(node.record->id());
    const auto of_person =
        node.is_node() ? 0
                       : std::ranges::count_if(peers, [&](const auto& peer) { return peer.second == id; });
    if (peers.size() >= config.connections ||
        static_cast<std::size_t>(of_person) >= config.connections_of_person) {
      return refuse(fail(ErrorCode::kExhausted, "too many connections"));
    }
    peers[event.connection] = id;
  }
  if (node.is_node()) {
    if (!node.connection.empty() && node.connection != event.connection) {
      effects.disconnects.push_back(node.connection);
      peers.erase(node.connection);
    }
    node.connection = event.connection;
    go_beyond(node.record->name(), hello.generation());
    greet_node(node, hello);
  }
  node.seen_unix_ms = now.unix_ms;
  node.software = clean_text(hello.software(), protocol::kNameBytes);
  node.address = event.address;
  node.host_label = clean_text(hello.host_label(), protocol::kNameBytes);

  pb::ControlReply message;
  message.set_id(event.request.id());
  auto& answer = *message.mutable_hello();
  answer.mutable_version()->set_major(protocol::kVersionMajor);
  answer.mutable_version()->set_minor(protocol::kVersionMinor);
  answer.set_generation(meta->generation());
  answer.set_heartbeat_ms(static_cast<std::uint32_t>(config.heartbeat / std::chrono::milliseconds(1)));
  answer.set_lease_ms(static_cast<std::uint32_t>(config.lease / std::chrono::milliseconds(1)));
  answer.set_assignment_version(node.version);
  answer.set_node_id(node.record->id());
  answer.set_role(node.record->role());
  answer.set_name(node.record->name());
  answer.set_address(event.address);
  if (hello.wants_peers() && !node.is_node()) answer.set_peers("");  // the host fills it: records are its own
  reply(event.connection, std::move(message));
}

void Machine::greet_node(Node& node, const pb::Hello& hello) {
  const stored::Node& record = *node.record;
  const bool same = record.incarnation() == hello.incarnation();
  if (!planted("reconnect_ignored")) closing.erase(record.id());
  node.seen = now.boot;
  if (awaited.erase(record.id()) > 0 && now.boot < recovery_until) {
    recovery_until = std::clamp(now.boot + config.arrival_pause, recovery_until, recovery_limit);
  }
  node.slots.assign(hello.slots().begin(), hello.slots().end());
  unsettled = true;
  if (!same) {
    if (record.incarnation() != 0) {
      node.superseded.push_back(record.incarnation());
      if (node.superseded.size() > kSuperseded) node.superseded.pop_front();
    }
    if (!planted("incarnation_ignored"))
      release_all(node, "lease_lost", text(record.name(), " was started again"), false);
    node.record.change().set_incarnation(hello.incarnation());
    node.sequence = 0;
    node.status.clear();
    for (auto& [manifest, held] : node.held) {
      if (!planted("former_copy_counted")) held = {.version = held.version, .moved = now.boot};
    }
    node.self_draining = false;
    node.drained_told = false;
    node.log_lines.clear();
    node.log_ready = false;
  }
  if (!same || !record.present()) {
    appear(node, text(hello.slots_size(),
                      hello.slots_size() == 1 ? " slot: " : " slots: ", hello.slots(0).device()));
  }
  // Held all the while, or run out with nobody to take over: its work goes on at the same epoch.
  for (const ExpertId& id : std::set(node.leases)) {
    Expert& expert = runs.at(id);
    if (expert.record->lease().slot() >= static_cast<std::uint32_t>(hello.slots_size())) {
      release(expert, "lease_lost",
              text(record.name(), " has no slot ", expert.record->lease().slot(), " any more"));
    } else if (expert.lapsed) {
      resume(expert, node);
    }
  }
  // What it offers of an epoch that is over is refused here already: it need not be asked for a commit first.
  for (const pb::HeldLease& offered : hello.held()) {
    Expert* expert = runs.find_expert(offered.run(), offered.expert());
    if (expert == nullptr || offered.epoch() >= expert->record->epoch()) continue;
    tell_fenced(*expert, node, offered.epoch(), offered.step(),
                text("it offers step ", offered.step(), " of epoch ", offered.epoch(), ", but epoch ",
                     expert->record->epoch(), " is current"));
  }
  if (node.version == 0 || !same) assignment_changed(record.id());
}

void Machine::appear(Node& node, const std::string& reason) {
  node.record.change().set_present(true);
  node.record.change().set_left(false);
  node.record.change().clear_gone_unix_ms();
  events.tell(kNodeJoined, reason, node.record->name());
}

// Answered at once, from what is durable already: never behind a write.
void Machine::heartbeat(Node& node, const Received& event) {
  const pb::Heartbeat& beat = event.request.heartbeat();
  if (beat.incarnation() != node.record->incarnation()) {
    reply_error(event.connection, event.request.id(), fail(ErrorCode::kConflict, kHelloFirst));
    return;
  }
  if (beat.sequence() <= node.sequence && !planted("old_heartbeat_counts")) return;
  node.sequence = beat.sequence();
  if (!is_live(node)) unsettled = true;
  node.seen = now.boot;
  node.seen_unix_ms = now.unix_ms;
  hear_replicas(node, beat);
  node.status.assign(
      beat.slots().begin(),
      beat.slots().begin() + std::min<int>(beat.slots_size(), static_cast<int>(protocol::kSlots)));
  if (!node.record->present()) {
    appear(node, "heard again after a silence");
  }
  for (const pb::SlotStatus& status : node.status) tell_overtaken(node, status);
  for (const pb::Transfer& transfer : beat.transfers()) transferred(node, transfer);
  for (const pb::PeerFault& fault : beat.faults()) peer_faulted(node, fault);
  if (node.self_draining != beat.draining()) {
    node.self_draining = beat.draining();
    node.drains_since = now.boot;
    node.drained_told = false;
    unsettled = true;
  }

  pb::ControlReply message;
  message.set_id(event.request.id());
  auto& answer = *message.mutable_heartbeat();
  answer.set_sequence(beat.sequence());
  const bool is_durable = node.version_batch <= persisted && !reversioned.contains(node.record->id());
  answer.set_assignment_version(is_durable || planted("version_before_durable") ? node.version
                                                                                : node.told_version);
  if (!node.log_ready) answer.set_log_request(node.log_request);
  for (const ExpertId& id : node.leases) {
    Expert& expert = runs.at(id);
    if (expert.lapsed) resume(expert, node);
    if (expert.grant_batch > persisted && !planted("renewal_before_durable")) continue;
    auto& renewed = *answer.add_renewed();
    renewed.set_run(id.run.str());
    renewed.set_expert(id.index);
    renewed.set_epoch(expert.record->epoch());
  }
  reply_at_once(event.connection, std::move(message));
}

void Machine::closed(const ConnectionId& connection) { forget_connection(connection); }

void Machine::forget_connection(const ConnectionId& connection) {
  const auto peer = peers.find(connection);
  if (peer == peers.end()) return;
  const auto known = nodes.find(peer->second.str());
  peers.erase(peer);
  if (known == nodes.end()) return;
  Node& node = known->second;
  if (node.connection != connection) return;
  node.connection.clear();
  if (!node.record->present()) return;
  if (has_drained(node)) return leave(node);
  closing[node.record->id()] = now.boot;
}

bool Machine::has_drained(const Node& node) { return node.self_draining && node.leases.empty(); }

// It said that it would, and held nothing any more: nothing is lost by it.
void Machine::leave(Node& node) {
  depart(node, true);
  events.tell("node_left", "it gave its work back and left", node.record->name());
}

void Machine::depart(Node& node, bool left) {
  node.record.change().set_present(false);
  node.record.change().set_left(left);
  node.record.change().set_gone_unix_ms(now.unix_ms);
  node.status.clear();
  closing.erase(node.record->id());
}

// Nodes that nothing names any more and that have been gone for so long, the longest first. A revoked key is never among
// them, nor is the author of a checkpoint that is kept.
std::vector<std::string> Machine::forgettable(std::int64_t gone_ms) const {
  std::set<std::string> authors;
  for (const auto& [id, run] : runs.all()) {
    for (const Expert& expert : run.experts) {
      for (const stored::Checkpoint& checkpoint : expert.record->checkpoints())
        authors.insert(checkpoint.node());
    }
  }
  std::set<std::string> connected;  // people too, one of whom may have become a node
  for (const auto& [connection, id] : peers) connected.insert(id.str());
  std::vector<std::pair<std::int64_t, std::string>> gone;
  for (const auto& [id, node] : nodes) {
    const stored::Node& record = *node.record;
    const bool is_here = record.present() || !node.connection.empty() || connected.contains(id);
    const bool is_named = !node.leases.empty() || !node.replicas.empty() || authors.contains(id);
    if (!node.is_node() || record.revoked() || is_here || is_named) continue;
    if (now.unix_ms - record.gone_unix_ms() >= gone_ms) gone.emplace_back(record.gone_unix_ms(), id);
  }
  std::ranges::sort(gone);
  std::vector<std::string> ids;
  for (auto& [since, id] : gone) ids.push_back(std::move(id));
  return ids;
}

// Else it could be forgotten in the batch that its certificate waits for.
void Machine::asked_again(Node& node) {
  if (node.record->gone_unix_ms() == 0) return;
  node.record.change().set_gone_unix_ms(now.unix_ms);
}

void Machine::forget_gone(std::int64_t gone_ms, std::size_t most) {
  std::vector<std::string> ids = forgettable(gone_ms);
  if (ids.size() > most) ids.resize(most);
  if (ids.empty()) return;
  std::string names;
  for (const std::string& id : ids) {
    const stored::Node& record = *nodes.at(id).record;
    if (names.size() < kNamesTold) names += text(names.empty() ? "" : ", ", record.name());
    effects.roster.push_back({NodeId(id), record.x25519_key(), record.role(), false});
    node_names.erase(record.name());
    node_keys.erase(record.x25519_key());
    closing.erase(id);
    awaited.erase(id);
    reversioned.erase(id);
    nodes.erase(id);
  }
  events.tell("nodes_forgotten", text(ids.size(), ids.size() == 1 ? " node was" : " nodes were",
                                      " gone for over ", human_duration(std::chrono::milliseconds(gone_ms)),
                                      ", and come back by their certificates: ", names,
                                      names.size() < kNamesTold ? "" : ", and others"));
}

bool Machine::is_live(const Node& node) const {
  return node.is_node() && !node.connection.empty() && now.boot - node.seen < 3 * config.heartbeat;
}

std::string Machine::unusable_because(const Node& node) const {
  if (node.record->revoked()) return "revoked";
  if (node.record->left()) return "no longer here";
  if (node.record->draining() || node.self_draining) return "draining";
  if (node.record->cordoned()) return "cordoned";
  if (!is_live(node)) return node.record->present() ? "silent" : "lost";
  return "";
}

std::string Machine::node_state(const Node& node) const {
  if (node.record->revoked()) return "revoked";
  if (node.record->left()) return "left";
  if (node.is_node() && (!node.record->present() || closing.contains(node.record->id()))) return "lost";
  if (node.record->draining() || node.self_draining) return "draining";
  if (node.record->cordoned()) return "cordoned";
  return node.leases.empty() ? "ready" : "training";
}

// A node that drains has drained once it holds nothing.
void Machine::check_drained(Node& node) {
  if (!(node.record->draining() || node.self_draining) || !node.leases.empty() || node.drained_told) return;
  node.drained_told = true;
  events.tell("drained",
              node.self_draining ? "it is going away and holds nothing any more"
                                 : "it holds nothing any more and stays cordoned",
              node.record->name());
  if (node.record->draining()) {
    node.record.change().set_draining(false);
  }
}

}  // namespace skerry::coordinator
