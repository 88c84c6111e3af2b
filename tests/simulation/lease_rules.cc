// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/lease_rules.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "tests/simulation/durable.h"

namespace skerry::simulation {
namespace {

Duration less(Duration time, double share) {
  return Duration(static_cast<std::int64_t>(static_cast<double>(time.count()) * (1 - share)));
}

constexpr std::uint64_t kCommitBytes = 10 << 20;  // of the largest one, and more

bool same_holder(const coordinator::LeaseView& a, const coordinator::LeaseView& b) {
  return a.node == b.node && a.slot == b.slot && a.incarnation == b.incarnation;
}

}  // namespace

void LeaseRules::coordinator_started(const coordinator::Core& core, const Durable& durable) {
  started_ = world_.timeline.now();
  has_lagged_ = false;
  nodes_.clear();
  connections_.clear();
  lost_.clear();
  early_ends_.clear();
  draining_.clear();
  cordoned_.clear();
  views_.clear();
  avoided_.clear();
  progress_.clear();
  each<stored::Node>(durable, coordinator::kNodePrefix, [&](const stored::Node& node) {
    if (node.cordoned() || node.draining()) cordoned_.insert(node.id());
  });
  silent_.clear();
  const std::vector<coordinator::ExpertView> experts = core.experts();
  check_slots(experts);
  for (const coordinator::ExpertView& view : experts) {
    views_[view.id] = view;
    take_slots(view);
    // A grant that never was durable never was.
    std::erase_if(over_, [&](const auto& ended) {
      return ended.first == view.id && ended.second >= view.epoch;
    });
  }
}

void LeaseRules::coordinator_stopped() { views_.clear(); }

void LeaseRules::coordinator_stood_still(Duration lag) {
  if (lag <= config_.loop_lag) return;
  has_lagged_ = true;
  lagged_ = world_.timeline.now();
  begin_again(lagged_);
}

// ---- What was heard ----

void LeaseRules::coordinator_hears(const coordinator::ConnectionId& connection, const std::string&,
                                   const pb::ControlRequest& request) {
  const auto greeted = connections_.find(connection);
  if (greeted == connections_.end() || !request.has_heartbeat()) return;
  Node& node = nodes_[greeted->second];
  const pb::Heartbeat& beat = request.heartbeat();
  if (node.connection != connection || beat.incarnation() != node.incarnation ||
      beat.sequence() <= node.sequence)
    return;
  node.sequence = beat.sequence();
  node.silence = std::max(node.silence, world_.timeline.now() - node.heard);
  node.heard = world_.timeline.now();
}

void LeaseRules::coordinator_loses(const coordinator::ConnectionId& connection) {
  lost_[connection] = world_.timeline.now();
  const auto greeted = connections_.find(connection);
  if (greeted == connections_.end()) return;
  Node& node = nodes_[greeted->second];
  if (node.connection == connection) {
    node.connection.clear();
    node.closed = world_.timeline.now();
  }
  connections_.erase(greeted);
}

void LeaseRules::take_word(const coordinator::Core& core, const coordinator::Received& event,
                           const coordinator::Effects& effects) {
  const pb::ControlRequest& request = event.request;
  const bool is_answered = std::ranges::any_of(effects.sends, [&](const coordinator::Send& send) {
    const auto* reply = std::get_if<pb::ControlReply>(&send.message);
    return send.connection == event.connection && reply != nullptr && !reply->has_error();
  });
  const std::optional<NodeId> id = core.node_of_key(event.key);
  if (!id || !is_answered) return;
  if (request.has_admin()) return take_admin(request.admin());
  Node& node = nodes_[id->str()];
  if (request.has_heartbeat()) {
    const std::uint64_t sequence = request.heartbeat().sequence();
    if (sequence <= node.answered) {
      world_.violated("L1",
                      text("heartbeat ", sequence, " of ", *id, " counts after ", node.answered));
    }
    node.answered = sequence;
    // It may have reached a coordinator that stood still before the Hello of
    // its process was read.
    node.sequence = std::max(node.sequence, sequence);
    node.silence = {};
    const pb::Heartbeat& beat = request.heartbeat();
    for (const pb::SlotStatus& status : beat.slots()) take_status(*id, status);
    if (beat.draining() || beat.has_leaves_in_ms() || beat.no_new_work()) {
      draining_.insert(id->str());
    } else {
      draining_.erase(id->str());
    }
  }
  if (request.has_engine_report()) {
    const pb::EngineReport& report = request.engine_report();
    if (report.gives_up() && report.failure() != pb::EngineEvent::FAILURE_NON_FINITE)
      gives_up_.insert({{RunId(report.run()), report.expert()}, Epoch(report.epoch()), *id});
  }
  if (!request.has_hello()) return;
  if (node.incarnation != request.hello().incarnation()) {
    node.incarnation = request.hello().incarnation();
    node.sequence = node.answered = 0;
    draining_.erase(id->str());
  }
  node.heard = world_.timeline.now();
  node.silence = {};
  // A coordinator that stood still reads the Hello of a connection that is
  // closed by now.
  if (const auto lost = lost_.find(event.connection); lost != lost_.end()) {
    node.connection.clear();
    node.closed = lost->second;
    return;
  }
  node.connection = event.connection;
  connections_[event.connection] = id->str();
}

void LeaseRules::take_admin(const pb::AdminRequest& request) {
  if (request.has_run_budget()) begin_again(world_.timeline.now());  // its limit may be another
  if (request.has_node_cordon()) cordoned_.insert(request.node_cordon().name());
  if (request.has_node_drain()) cordoned_.insert(request.node_drain().name());
  if (request.has_node_evict()) cordoned_.insert(request.node_evict().name());
  if (request.has_node_uncordon()) cordoned_.erase(request.node_uncordon().name());
}

// ---- What became of the leases ----

void LeaseRules::coordinator_stepped(const CoordinatorStep& step) {
  // A person's word counts in the step that answers it: before its grants are
  // looked at.
  if (const auto* received =
          step.event == nullptr ? nullptr : std::get_if<coordinator::Received>(step.event))
    take_word(step.core, *received, step.effects);
  // A node that is forgotten loses its cordon: it comes back as a new one.
  for (const coordinator::RosterChange& change : step.effects.roster) {
    if (!change.allowed) cordoned_.erase(change.node.str());
  }
  const bool is_tick =
      step.event != nullptr && std::holds_alternative<coordinator::Tick>(*step.event);
  look_at(step.experts, is_tick);
  if (const auto* disk =
          step.event == nullptr ? nullptr : std::get_if<coordinator::DiskFree>(step.event))
    lacks_room_ = disk->bytes < config_.reserve_bytes + kCommitBytes;
  if (is_tick) check_stalls(step.experts);
  gives_up_.clear();
}

// A step is looked at as it differs from the one before: most change no lease.
void LeaseRules::look_at(const std::vector<coordinator::ExpertView>& experts, bool is_tick) {
  bool is_changed = false;
  for (const coordinator::ExpertView& now : experts) {
    coordinator::ExpertView& before = views_[now.id];
    if (std::exchange(before.head_step, now.head_step) != now.head_step)
      committed_[now.id] = world_.timeline.now();
    if (now.lease == before.lease && now.epoch == before.epoch) continue;
    is_changed = true;
    take_slots(now);
    const bool is_same = before.lease && now.lease && same_holder(*before.lease, *now.lease);
    if (before.lease && !is_same && gives_up_.contains({now.id, before.epoch, before.lease->node}))
      avoid(now.id, before.lease->node, before.lease->incarnation);
    if (is_same && now.lease->lapsed && !before.lease->lapsed) lapsed(now);
    if (now.lease && (!is_same || now.epoch != before.epoch)) {
      // One that ends and goes to another within one step was not seen as
      // lapsed, as one that a stall ends.
      if (before.lease && !before.lease->lapsed && is_tick) lapsed(before);
      if (silent_.erase({now.id, before.epoch}) > 0) over_.insert({now.id, before.epoch});
      committed_[now.id] = world_.timeline.now();
      granted(now);
    }
    // One whose last commit counts in this step is done.
    const bool is_over = before.lease && !before.lease->lapsed && !now.lease && is_tick;
    if (is_over && committed_[now.id] < world_.timeline.now()) lapsed(before);
    if (is_same && !now.lease->lapsed) silent_.erase({now.id, now.epoch});
    before = now;
  }
  if (is_changed) check_slots(experts);
}

void LeaseRules::take_status(const NodeId& node, const pb::SlotStatus& status) {
  const ExpertId id{RunId(status.run()), status.expert()};
  const auto view = views_.find(id);
  if (view == views_.end() || !view->second.lease || view->second.lease->node != node) return;
  Progress& its = progress_[id];
  const bool is_further = status.step() > std::exchange(its.step, status.step());
  if (status.fetched_bytes() > std::exchange(its.fetched, status.fetched_bytes()) || is_further)
    its.at = world_.timeline.now();
}

void LeaseRules::begin_again(Duration at) {
  for (auto& [expert, progress] : progress_) progress.at = std::max(progress.at, at);
}

void LeaseRules::check_stalls(const std::vector<coordinator::ExpertView>& experts) {
  constexpr int kArrivals = 10;  // that keep the recovery window open, at most
  const Duration recovered =
      started_ + config_.lease + config_.grace + kArrivals * config_.arrival_pause;
  // A budget that is spent meanwhile begins a span of its own.
  const Duration limit = config_.stall + config_.stall_over_budget + std::chrono::seconds(5);
  const Duration now = world_.timeline.now();
  for (const coordinator::ExpertView& expert : experts) {
    Progress& its = progress_[expert.id];
    const bool waits = lacks_room_ || !expert.lease || expert.lease->lapsed || expert.pending;
    its.at = waits ? now : std::max({its.at, recovered, committed_[expert.id]});
    if (less(now - its.at, kDrift) <= limit) continue;
    world_.violated("stall", text(expert.id, ": ", expert.lease->node, " keeps its lease, and is ",
                                  "no nearer to a commit since ", human_duration(now - its.at)));
  }
}

void LeaseRules::check_slots(const std::vector<coordinator::ExpertView>& experts) {
  std::set<std::pair<NodeId, std::uint32_t>> taken;
  for (const coordinator::ExpertView& now : experts) {
    if (!now.lease || now.lease->lapsed) continue;
    std::vector<std::uint32_t> slots = now.lease->more;
    slots.push_back(now.lease->slot);
    for (const std::uint32_t slot : slots) {
      if (!taken.insert({now.lease->node, slot}).second)
        world_.violated("slot", text(now.id, ": slot ", slot, " of ", now.lease->node,
                                     " trains another expert already"));
    }
  }
}

void LeaseRules::lapsed(const coordinator::ExpertView& expert) {
  const Duration now = world_.timeline.now();
  const Duration silence = less(config_.lease + config_.grace, kDrift);
  const NodeId& id = expert.lease->node;
  const auto known = nodes_.find(id.str());
  if (now - started_ < silence) {
    return world_.violated("L4",
                           text(expert.id, ": ", id, " loses its lease in the recovery window, ",
                                human_duration(now - started_), " after the coordinator's start"));
  }
  if (known == nodes_.end()) return;  // not heard since the start
  const Node& holder = known->second;
  const bool was_silent = std::max(holder.silence, now - holder.heard) >= silence;
  if (!was_silent && holder.incarnation == expert.lease->incarnation) {
    const Duration stall = std::min(config_.stall, config_.stall_over_budget);
    if (now - committed_[expert.id] >= less(stall, kDrift)) return;
    if (!holder.connection.empty()) {
      return world_.violated("L4", text(expert.id, ": ", id, " loses its lease, and was heard ",
                                        human_duration(now - holder.heard), " before"));
    }
    return ended_early(expert, holder);
  }
  silent_.insert({expert.id, expert.epoch});
  for (const Believer* believer : world_.believers) {
    if (believer->believes(expert.id, expert.epoch, expert.lease->incarnation)) {
      world_.violated("S1", text(expert.id, ": ", id, " loses its lease of epoch ", expert.epoch,
                                 " and still counts on it"));
    }
  }
}

void LeaseRules::avoid(const ExpertId& expert, const NodeId& node, std::uint64_t incarnation) {
  avoided_[{expert, node}] = {incarnation, world_.timeline.now() + less(config_.avoid, kDrift)};
}

void LeaseRules::ended_early(const coordinator::ExpertView& expert, const Node& holder) {
  const Duration now = world_.timeline.now();
  const std::string id = expert.lease->node.str();
  if (now - holder.closed < less(config_.reconnect, kDrift)) {
    return world_.violated("L4", text(expert.id, ": ", id, " has only just closed its connection"));
  }
  if (has_lagged_ && now - lagged_ < less(config_.early_end_window, kDrift)) {
    return world_.violated(
        "L4", text(expert.id, ": ", id, " loses its lease while the coordinator lagged"));
  }
  while (!early_ends_.empty() &&
         now - early_ends_.front().first > less(config_.early_end_window, kDrift))
    early_ends_.pop_front();
  std::set<std::string> ended{id};
  for (const auto& [when, node] : early_ends_) ended.insert(node);
  early_ends_.emplace_back(now, id);
  if (ended.size() > config_.early_ends) {
    world_.violated("L4",
                    text(expert.id, ": ", ended.size(), " nodes lost their leases early within ",
                         human_duration(config_.early_end_window)));
  }
}

void LeaseRules::take_slots(const coordinator::ExpertView& expert) {
  if (!expert.lease) return;
  std::set<std::uint32_t>& slots = slots_[{expert.id, expert.epoch}];
  slots.insert(expert.lease->slot);
  slots.insert(expert.lease->more.begin(), expert.lease->more.end());
}

// Of a commit that one engine trained from its beginning.
void LeaseRules::check_commit(const std::string& name, const pb::Commit& commit) {
  const auto snapshot = snapshots_.find(commit.manifest().manifest());
  const std::uint32_t said = std::max(1U, commit.metrics().cards());
  if (snapshot == snapshots_.end() || snapshot->second.from > commit.from_step() ||
      commit.metrics().train_seconds() <= 0 || said == snapshot->second.cards)
    return;
  world_.violated("card", text(name, " commits what ", snapshot->second.cards,
                               " cards trained as the steps of ", said));
}

void LeaseRules::daemon_stepped(const DaemonStep& step) {
  for (const daemon::StartEngine& order : step.effects.starts) {
    engines_[{step.name, order.engine}] = {0, order.cards.size()};
    const auto view = std::ranges::find(step.slots, order.slot, &daemon::SlotView::slot);
    const std::set<std::uint32_t>& slots = slots_[{view->expert, view->epoch}];
    for (const std::uint32_t card : order.cards) {
      if (!slots.contains(card))
        world_.violated("card", text(step.name, " trains ", view->expert, " on the card of slot ",
                                     card, ", which its lease never had"));
    }
  }
  if (const auto* made = std::get_if<daemon::EngineSnapshot>(&step.event))
    engines_[{step.name, made->engine}].from = made->snapshot.from_step();
  if (const auto* stored = std::get_if<daemon::SnapshotStored>(&step.event))
    snapshots_[stored->object.manifest()] = engines_[{step.name, stored->engine}];
  for (const pb::ControlRequest& request : step.effects.sends) {
    if (request.has_commit()) check_commit(step.name, request.commit());
  }
  if (over_.empty()) return;
  for (const daemon::SlotView& slot : step.slots) {
    if (slot.has_lease && slot.may_commit && over_.contains({slot.expert, slot.epoch})) {
      world_.violated("S1", text(slot.expert, ": ", step.id, " counts on epoch ", slot.epoch,
                                 ", which ended by its silence and is another's by now"));
    }
  }
}

void LeaseRules::granted(const coordinator::ExpertView& expert) {
  constexpr std::uint64_t kLeast = 800'000'000;  // what every job needs
  const std::string id = expert.lease->node.str();
  const auto memory = world_.memory_bytes.find(expert.lease->node);
  if (memory != world_.memory_bytes.end() && memory->second < kLeast)
    world_.violated("misfit", text(expert.id, ": is given to ", id, ", whose card is too small"));
  const auto avoided = avoided_.find({expert.id, expert.lease->node});
  if (avoided != avoided_.end() && avoided->second.incarnation == expert.lease->incarnation &&
      world_.timeline.now() < avoided->second.until)
    world_.violated("avoid", text(expert.id, ": is given to ", id, ", which gave it up lately"));
  if (cordoned_.contains(id) || draining_.contains(id)) {
    world_.violated("cordon",
                    text(expert.id, ": is given to ", id, ", which is cordoned or drains"));
  }
}

}  // namespace skerry::simulation
