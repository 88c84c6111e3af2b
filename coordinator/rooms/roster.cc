// SPDX-License-Identifier: Apache-2.0
#include "coordinator/rooms/roster.h"

#include <algorithm>

#include "base/clean_text.h"
#include "base/text.h"
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

std::set<std::uint32_t> lost_slots(const Node& node) {
  std::set<std::uint32_t> lost;
  for (const pb::SlotStatus& status : node.session->status) {
    if (is_lost(status)) lost.insert(status.slot());
  }
  return lost;
}

void forget_notice(Session& session) {
  session.leaves_at.reset();
  session.self_cordoned = false;
  session.notice.clear();
}

}  // namespace

const Node* Roster::find(const NodeId& id) const {
  const auto found = nodes_.find(id);
  return found == nodes_.end() ? nullptr : &found->second;
}

const Node* Roster::find_key(const std::string& x25519) const {
  const auto id = ids_of_keys_.find(x25519);
  return id == ids_of_keys_.end() ? nullptr : &nodes_.at(id->second);
}

std::size_t Roster::start() {
  next_version_ =
      std::uint64_t{context.meta->generation()} << 48 | (context.meta->starts() & 0xffff) << 32;
  std::size_t fleet = 0;
  for (auto& [id, node] : nodes_) {
    session(node).seen = now.boot;
    fleet += node.is_node() ? 1 : 0;
    if (node.record->present()) awaited_.insert(id);
    if (!node.record->present() && node.record->gone_unix_ms() == 0)
      node.record.change().set_gone_unix_ms(now.unix_ms);
    if (!node.record->revoked())
      effects.roster.push_back({id, node.record->x25519_key(), node.record->role(), true});
  }
  const auto dialling = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(
      2 * static_cast<double>(awaited_.size()) / config.dials_per_second));
  const Duration recovery = std::max(config.lease + config.grace, dialling);
  recovery_until_ = now.boot + recovery;
  recovery_limit_ = now.boot + config.longest_recovery * recovery;
  return fleet;
}

void Roster::excuse(Duration lag) {
  for (auto& [id, node] : nodes_) session(node).seen = std::min(now.boot, node.session->seen + lag);
  closing_.clear();
}

Result<void> Roster::connect(Node& node, const Received& event) {
  const pb::Hello& hello = event.request.hello();
  TRY(check_version(hello.version()));
  Session& here = session(node);
  const bool is_other = here.connection != event.connection;
  if (node.is_node()) {
    if (hello.incarnation() == 0 || hello.slots().empty())
      return fail(ErrorCode::kInvalid, "a node says its incarnation and slots");
    const auto superseded = std::ranges::find(here.superseded, hello.incarnation());
    // A killed process's Hello may come late and take the place of its living
    // successor. It never beats.
    const bool successor_lives = !here.connection.empty() && is_other && here.sequence > 0;
    if (superseded != here.superseded.end()) {
      if (successor_lives)
        return fail(ErrorCode::kUnauthorised,
                    "another process with this node's key has taken its place; is the data folder "
                    "in use twice?");
      here.superseded.erase(superseded);
    }
  }
  if (!peers_.contains(event.connection)) {
    const auto of_person =
        node.is_node() ? 0 : std::ranges::count_if(peers_, [&](const auto& peer) {
          return peer.second == node.id();
        });
    if (peers_.size() >= config.connections ||
        static_cast<std::size_t>(of_person) >= config.connections_of_person)
      return fail(ErrorCode::kExhausted, "too many connections");
    peers_[event.connection] = node.id();
  }
  if (!node.is_node()) return {};
  if (!here.connection.empty() && is_other) {
    effects.disconnects.push_back(here.connection);
    peers_.erase(here.connection);
  }
  here.connection = event.connection;
  context.remetered.insert(node.id());
  return {};
}

void Roster::describe(Node& node, const Received& event) {
  const pb::Hello& hello = event.request.hello();
  Session& here = session(node);
  here.seen_unix_ms = now.unix_ms;
  here.software = clean_text(hello.software(), protocol::kNameBytes);
  here.address = event.address;
  here.host_label = clean_text(hello.host_label(), protocol::kNameBytes);
  here.price = hello.price();
}

void Roster::arrive(Node& node, const pb::Hello& hello) {
  closing_.erase(node.id());
  session(node).seen = now.boot;
  if (awaited_.erase(node.id()) > 0 && now.boot < recovery_until_)
    recovery_until_ = std::clamp(now.boot + config.arrival_pause, recovery_until_, recovery_limit_);
  session(node).slots.assign(hello.slots().begin(), hello.slots().end());
  session(node).may_stop = hello.stopping();
  session(node).knows_cards = hello.version().minor() >= protocol::kMinorOfCards;
  session(node).knows_captions = hello.version().minor() >= protocol::kMinorOfCaptions;
  context.must_reschedule = true;
}

void Roster::let_stop(Node& node) {
  if (node.session->may_stop) return;
  session(node).may_stop = true;
  context.must_reschedule = true;
}

void Roster::restart(Node& node, std::uint64_t incarnation) {
  Session& here = session(node);
  if (node.record->incarnation() != 0) {
    here.superseded.push_back(node.record->incarnation());
    if (here.superseded.size() > kSuperseded) here.superseded.pop_front();
  }
  node.record.change().set_incarnation(incarnation);
  here.sequence = 0;
  here.status.clear();
  here.self_draining = false;
  here.drained_told = false;
  forget_notice(here);
  here.log_lines.clear();
  here.log_ready = false;
}

void Roster::appear(Node& node, const std::string& reason) {
  node.record.change().set_present(true);
  node.record.change().set_left(false);
  node.record.change().clear_gone_unix_ms();
  context.remetered.insert(node.id());
  events_.tell(EventKind::kNodeJoined, reason, node.record->name());
}

bool Roster::beat(Node& node, const pb::Heartbeat& beat) {
  Session& here = session(node);
  if (beat.sequence() <= here.sequence) return false;
  here.sequence = beat.sequence();
  if (!is_live(node)) context.must_reschedule = true;
  here.seen = now.boot;
  here.seen_unix_ms = now.unix_ms;
  const std::set<std::uint32_t> lost_before = lost_slots(node);
  here.status.assign(
      beat.slots().begin(),
      beat.slots().begin() + std::min<int>(beat.slots_size(), static_cast<int>(protocol::kSlots)));
  if (lost_slots(node) != lost_before) context.must_reschedule = true;
  if (!node.record->present()) appear(node, "heard again after a silence");
  take_notice(node, beat);
  return true;
}

// A node of minor version 1 only says that it drains.
void Roster::take_notice(Node& node, const pb::Heartbeat& beat) {
  Session& here = session(node);
  const bool drains = beat.draining() || beat.has_leaves_in_ms();
  if (here.self_draining != drains) {
    here.self_draining = drains;
    here.drains_since = now.boot;
    here.drained_told = false;
    context.must_reschedule = true;
  }
  if (here.self_cordoned != beat.no_new_work()) {
    here.self_cordoned = beat.no_new_work();
    context.must_reschedule = true;
  }
  if (here.may_stop && !beat.idle()) {
    here.may_stop = false;
    context.must_reschedule = true;
  }
  here.leaves_at.reset();
  if (beat.has_leaves_in_ms())
    here.leaves_at = now.boot + std::chrono::milliseconds(beat.leaves_in_ms());
  if (here.notice == beat.notice()) return;
  here.notice = beat.notice();
  std::string what = clean_text(here.notice, protocol::kNoticeBytes);
  if (here.self_cordoned || here.may_stop) what += ": it takes no new lease";
  if (here.notice.empty()) what = "the notice is over: it may be given work again";
  if (here.leaves_at) {
    what = text(clean_text(here.notice, protocol::kNoticeBytes), ": ", *leaves_in_seconds(node),
                " s left: it gives its leases back");
  }
  events_.tell(EventKind::kNotice, what, node.record->name());
}

// One that is much smaller says how long an answer takes, and little of a rate.
void Roster::fetched(Node& node, const pb::Transfer& transfer) {
  constexpr double kSmall = 0.125, kNewest = 0.25;
  Session& here = session(node);
  const auto bytes = static_cast<double>(transfer.bytes());
  if (bytes <= kSmall * here.fetched_bytes) return;
  const double seconds = static_cast<double>(std::max<std::uint64_t>(transfer.millis(), 1)) / 1e3;
  const double weight = here.fetched_bytes > 0 ? kNewest : 1;
  here.fetched_bytes += weight * (bytes - here.fetched_bytes);
  here.fetched_seconds += weight * (seconds - here.fetched_seconds);
}

double Roster::fetch_rate(const Node& node) {
  constexpr double kUnknown = 1e8;  // about a gigabit a second
  const Session& here = *node.session;
  return here.fetched_bytes > 0 ? here.fetched_bytes / here.fetched_seconds : kUnknown;
}

std::optional<std::uint64_t> Roster::leaves_in_seconds(const Node& node) const {
  if (!node.session->leaves_at || !node.record->present()) return std::nullopt;
  const Duration left = std::max(*node.session->leaves_at - now.boot, Duration{});
  return static_cast<std::uint64_t>(std::chrono::round<std::chrono::seconds>(left).count());
}

void Roster::close(const ConnectionId& connection) {
  const auto peer = peers_.find(connection);
  if (peer == peers_.end()) return;
  const auto known = nodes_.find(peer->second);
  peers_.erase(peer);
  if (known == nodes_.end()) return;
  Node& node = known->second;
  if (node.session->connection != connection) return;
  session(node).connection.clear();
  context.remetered.insert(node.id());
  if (!node.record->present()) return;
  if (has_drained(node)) return leave(node);
  closing_[node.id()] = now.boot;
}

std::vector<NodeId> Roster::take_unreturned() {
  std::vector<NodeId> unreturned;
  std::erase_if(closing_, [&](const auto& each) {
    if (now.boot - each.second < config.reconnect) return false;
    if (nodes_.at(each.first).session->connection.empty()) unreturned.push_back(each.first);
    return true;
  });
  return unreturned;
}

Duration Roster::next_unreturned(Duration latest) const {
  for (const auto& [id, since] : closing_) latest = std::min(latest, since + config.reconnect);
  return latest;
}

bool Roster::has_drained(const Node& node) {
  return node.session->self_draining && node.leases->empty();
}

void Roster::leave(Node& node) {
  depart(node, true);
  events_.tell(EventKind::kNodeLeft, "it gave its work back and left", node.record->name());
}

void Roster::depart(Node& node, bool left) {
  node.record.change().set_present(false);
  node.record.change().set_left(left);
  node.record.change().set_gone_unix_ms(now.unix_ms);
  session(node).status.clear();
  if (left) forget_notice(session(node));
  closing_.erase(node.id());
  context.remetered.insert(node.id());
}

// Nodes that nothing names any more and that have been gone for so long, the
// longest first. A revoked key is never among them, nor is the author of a
// checkpoint that is kept.
std::vector<NodeId> Roster::forgettable(std::int64_t gone_ms) const {
  std::set<NodeId> authors;
  for (const auto& [id, run] : runs_.all()) {
    for (const Expert& expert : run.experts) {
      for (const stored::Checkpoint& checkpoint : expert.record->checkpoints())
        authors.emplace(checkpoint.node());
    }
  }
  std::set<NodeId> connected;  // people too, one of whom may have become a node
  for (const auto& [connection, id] : peers_) connected.insert(id);
  std::vector<std::pair<std::int64_t, NodeId>> gone;
  for (const auto& [id, node] : nodes_) {
    const stored::Node& record = *node.record;
    const bool is_here =
        record.present() || !node.session->connection.empty() || connected.contains(id);
    const bool is_named =
        !node.leases->empty() || !node.replicas->experts.empty() || authors.contains(id);
    if (!node.is_node() || record.revoked() || is_here || is_named) continue;
    if (now.unix_ms - record.gone_unix_ms() >= gone_ms)
      gone.emplace_back(record.gone_unix_ms(), id);
  }
  std::ranges::sort(gone);
  std::vector<NodeId> ids;
  for (auto& [since, id] : gone) ids.push_back(std::move(id));
  return ids;
}

// Else it could be forgotten in the batch that its certificate waits for.
void Roster::asked_again(Node& node) {
  if (node.record->gone_unix_ms() == 0) return;
  node.record.change().set_gone_unix_ms(now.unix_ms);
}

void Roster::forget_gone(std::int64_t gone_ms, std::size_t most) {
  std::vector<NodeId> ids = forgettable(gone_ms);
  if (ids.size() > most) ids.resize(most);
  if (ids.empty()) return;
  std::string names;
  for (const NodeId& id : ids) {
    const stored::Node& record = *nodes_.at(id).record;
    if (names.size() < kNamesTold) names += text(names.empty() ? "" : ", ", record.name());
    effects.roster.push_back({id, record.x25519_key(), record.role(), false});
    ids_.erase(record.name());
    ids_of_keys_.erase(record.x25519_key());
    closing_.erase(id);
    awaited_.erase(id);
    reversioned_.erase(id);
    context.remetered.insert(id);
    nodes_.erase(id);
  }
  events_.tell(EventKind::kNodesForgotten,
               text(ids.size(), ids.size() == 1 ? " node was" : " nodes were", " gone for over ",
                    human_duration(std::chrono::milliseconds(gone_ms)),
                    ", and come back by their certificates: ", names,
                    names.size() < kNamesTold ? "" : ", and others"));
}

bool Roster::is_live(const Node& node) const {
  return node.is_node() && !node.session->connection.empty() &&
         now.boot - node.session->seen < 3 * config.heartbeat;
}

std::string Roster::unusable_because(const Node& node) const {
  if (node.record->revoked()) return "revoked";
  if (node.record->left()) return "no longer here";
  if (node.record->draining() || node.session->self_draining) return "draining";
  if (node.record->cordoned()) return "cordoned";
  if (node.session->self_cordoned) return "advised to expect its end";
  if (node.session->may_stop) return "idle and about to stop";
  if (!is_live(node)) return node.record->present() ? "silent" : "lost";
  return "";
}

std::string Roster::state(const Node& node) const {
  if (node.record->revoked()) return "revoked";
  if (node.record->left()) return "left";
  if (node.is_node() && (!node.record->present() || closing_.contains(node.id()))) return "lost";
  if (node.record->draining() || node.session->self_draining) return "draining";
  if (node.record->cordoned() || node.session->self_cordoned || node.session->may_stop)
    return "cordoned";
  return node.leases->empty() ? "ready" : "training";
}

// A node that drains has drained once it holds nothing.
void Roster::check_drained(Node& node) {
  if (!(node.record->draining() || node.session->self_draining) || !node.leases->empty() ||
      node.session->drained_told)
    return;
  session(node).drained_told = true;
  events_.tell(EventKind::kDrained,
               node.session->self_draining ? "it is going away and holds nothing any more"
                                           : "it holds nothing any more and stays cordoned",
               node.record->name());
  if (node.record->draining()) {
    node.record.change().set_draining(false);
  }
}

void Roster::cordon(Node& node, bool cordoned) {
  node.record.change().set_cordoned(cordoned);
  if (!cordoned) node.record.change().set_draining(false);
  events_.tell(cordoned ? EventKind::kCordoned : EventKind::kUncordoned,
               cordoned ? "it is given nothing new" : "it may be given work again",
               node.record->name());
  context.must_reschedule = true;
}

void Roster::drain(Node& node) {
  node.record.change().set_draining(true);
  node.record.change().set_cordoned(true);
  session(node).drained_told = false;
  events_.tell(EventKind::kDraining, text(node.leases->size(), " leases end at their next commits"),
               node.record->name());
  context.must_reschedule = true;
}

void Roster::evict(Node& node) {
  node.record.change().set_cordoned(true);
  node.record.change().set_draining(false);
  events_.tell(EventKind::kEvicted,
               "its work since the last commits is discarded; it stays cordoned",
               node.record->name());
}

void Roster::revoke(Node& node, const std::string& reason) {
  const stored::Node& record = *node.record;
  node.record.change().set_revoked(true);
  depart(node, false);
  events_.tell(EventKind::kRevoked, reason, record.name());
  effects.roster.push_back({node.id(), record.x25519_key(), record.role(), false});
  std::erase_if(peers_, [&](const auto& peer) {
    if (peer.second != node.id()) return false;
    effects.disconnects.push_back(peer.first);
    return true;
  });
  session(node).connection.clear();
}

std::optional<std::vector<std::string>> Roster::take_log(Node& node) {
  Session& here = session(node);
  if (here.log_ready) {
    here.log_ready = false;
    here.log_request = 0;
    return std::exchange(here.log_lines, {});
  }
  if (here.log_request == 0) here.log_request = ++next_version_;  // unique, and never 0
  return std::nullopt;
}

void Roster::keep_log(Node& node, const pb::NodeLog& log) {
  Session& here = session(node);
  if (log.request() == 0 || log.request() != here.log_request || here.log_ready) return;
  const auto lines =
      std::min<std::size_t>(protocol::kLogLines, static_cast<std::size_t>(log.lines_size()));
  here.log_lines.assign(log.lines().begin(),
                        log.lines().begin() + static_cast<std::ptrdiff_t>(lines));
  here.log_ready = true;
}

void Roster::assignment_changed(const NodeId& id) {
  Session& here = session(nodes_.at(id));
  if (!reversioned_.insert(id).second) return;
  if (here.version_batch <= context.persisted) here.told_version = here.version;
  here.version = ++next_version_;
}

std::uint64_t Roster::durable_version(const Node& node) const {
  const bool is_durable =
      node.session->version_batch <= context.persisted && !reversioned_.contains(node.id());
  return is_durable ? node.session->version : node.session->told_version;
}

void Roster::batch_numbered() {
  for (const NodeId& id : std::exchange(reversioned_, {}))
    session(nodes_.at(id)).version_batch = context.batch;
}

std::string Roster::load(stored::Node record) {
  if (record.x25519_key().size() != 32) return "its key has not 32 bytes";
  const NodeId id(record.id());
  if (!ids_.emplace(record.name(), id).second) return "its name is another node's";
  if (!ids_of_keys_.emplace(record.x25519_key(), id).second) return "its key is another node's";
  nodes_.load({.record = Tracked(std::move(record))});
  return "";
}

std::string Roster::load(stored::Token record) {
  if (record.info().used() > record.info().uses()) return "it was used more often than allowed";
  tokens_.load({Tracked(std::move(record))});
  return "";
}

std::string Roster::load(stored::RevokedKey record) {
  revoked_keys_.load({Tracked(std::move(record))});
  return "";
}

}  // namespace skerry::coordinator
