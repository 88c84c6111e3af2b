// SPDX-License-Identifier: Apache-2.0
// After each event: what the scheduler says of the new state is carried out,
// and people are told why.
#include <algorithm>
#include <iomanip>
#include <sstream>

#include "base/text.h"
#include "coordinator/rooms/leases.h"
#include "protocol/limits.h"

namespace skerry::coordinator {
namespace {

constexpr double kNewestStart = 0.25;  // the weight of the last start's time
constexpr double kStartSeconds = 10;   // before any was measured

std::string unwanted_because(const Run& run, const Expert& expert) {
  if (expert.is_removed()) return "it was removed from the run";
  if (run.is_at_target(expert)) return text("done: it has reached step ", expert.step());
  switch (run.record->wanted()) {
    case stored::WANTED_PAUSED:
      return "the run is paused";
    case stored::WANTED_STOPPED:
      return "the run was stopped";
    case stored::WANTED_FAILED:
      return text("the run failed: ", run.record->reason());
    default:
      return "the run is done";
  }
}

std::string human_speed(double operations_per_second) {
  constexpr double kTera = 1e12, kGiga = 1e9;
  std::ostringstream out;
  out << std::setprecision(3);
  if (operations_per_second >= kTera) {
    out << operations_per_second / kTera << " TFLOP/s";
  } else {
    out << operations_per_second / kGiga << " GFLOP/s";
  }
  return out.str();
}

std::string state_of(const Run& run) {
  switch (run.record->wanted()) {
    case stored::WANTED_PAUSED:
      return "paused";
    case stored::WANTED_STOPPED:
      return "stopped";
    case stored::WANTED_FAILED:
      return "failed";
    case stored::WANTED_DONE:
      return "done";
    default:
      return std::ranges::any_of(run.experts, &Expert::held) ? "running" : "waiting";
  }
}

}  // namespace

// What the scheduler is given. The slots of `slots` and of every job stand in
// the order of `nodes`.
struct Leases::Inputs {
  std::vector<SchedulableNode> nodes;
  std::vector<Speeds::Slot> slots;
  std::vector<std::uint64_t> memory;
  std::vector<double> node_prices;   // by slot
  std::vector<bool> lost;            // by slot: its card is
  std::vector<bool> knows_captions;  // by slot: its node does
  std::size_t most_slots = 0;        // of a node
  std::vector<SchedulableJob> jobs;
  std::vector<double> operations;          // of one step, by job
  std::vector<std::vector<Speed>> speeds;  // by job and slot, whether it fits or not
  std::map<std::tuple<RunId, bool, std::string>, std::size_t> index;  // of a job
  std::map<RunId, std::vector<std::uint64_t>> shard_bytes;            // by expert
};

void Leases::add_nodes(Inputs& inputs) const {
  for (const auto& [id, node] : roster_.all()) {
    if (!node.is_node() || (node.session->slots.empty() && node.leases->empty())) continue;
    SchedulableNode view;
    view.id = id;
    view.name = node.record->name();
    for (std::uint32_t slot = 0; slot < node.session->slots.size(); ++slot) {
      const pb::Slot& said = node.session->slots[slot];
      view.slots.push_back(
          {slot, said.memory_bytes(), slot_price(node), said.device(), said.alone()});
      inputs.lost.push_back(std::ranges::any_of(node.session->status, [&](const auto& status) {
        return status.slot() == slot && is_lost(status);
      }));
      inputs.knows_captions.push_back(node.session->knows_captions);
      inputs.node_prices.push_back(node.session->price);
      inputs.slots.push_back({id, said.device()});
      inputs.memory.push_back(said.memory_bytes());
    }
    inputs.most_slots = std::max(inputs.most_slots, view.slots.size());
    view.unusable_because = roster_.unusable_because(node);
    view.usable = view.unusable_because.empty();
    view.draining = node.record->draining() || node.session->self_draining;
    view.knows_cards = node.session->knows_cards;
    view.bytes_per_second = roster_.fetch_rate(node);
    inputs.nodes.push_back(std::move(view));
  }
}

// A job of its own for the router, and for experts that are bound to the cards
// of another fingerprint.
std::size_t Leases::job_index(Inputs& inputs, const Run& run, std::uint32_t expert) const {
  const bool is_router = run.is_router(expert);
  const Expert& its = run.experts[expert];
  const std::string bound = run.record->spec().cards() == "same" && its.has_head()
                                ? its.record->checkpoints(0).fingerprint()
                                : "";
  const auto [at, is_new] =
      inputs.index.try_emplace({run.id(), is_router, bound}, inputs.jobs.size());
  if (!is_new) return at->second;
  const Job job = job_of(run, is_router);
  // One node speaks for itself, two for every device of their name. They do not
  // if no other device is left: two that lie could bar a whole fleet.
  const auto was_too_small = [&](const Speeds::Slot& slot, bool by_name) {
    std::set<std::string> nodes;
    for (const stored::TooSmall& each : run.record->too_small()) {
      if (each.device() != slot.device || each.router() != is_router) continue;
      if (each.node() == slot.node.str()) return true;
      nodes.insert(each.node());
    }
    return by_name && nodes.size() > 1;
  };
  SchedulableJob view;
  const double most = run.record->spec().max_node_price();
  const bool reads_captions = !is_router && run.record->model().caption_dim() > 0;
  const bool some_are_old = reads_captions && std::ranges::count(inputs.knows_captions, false) > 0;
  view.needs = text(
      human_bytes(job.needs_bytes), bound.empty() ? "" : " and the card of its last checkpoint",
      some_are_old ? text(" and, for its captions, a daemon of protocol ", protocol::kVersionMajor,
                          ".", protocol::kMinorOfCaptions, " or newer")
                   : "",
      most > 0
          ? text(", on a node of at most ", human_dollars(most), " an hour (budget.max_node_price)")
          : "");
  std::vector<Speed> speeds = speeds_.of(job, inputs.slots);
  for (const bool by_name : {true, false}) {
    view.speed.clear();
    for (std::size_t s = 0; s < inputs.slots.size(); ++s) {
      const Speeds::Slot& slot = inputs.slots[s];
      const bool fits = (inputs.memory[s] == 0 || inputs.memory[s] >= job.needs_bytes) &&
                        (bound.empty() || bound.find(slot.device) != std::string::npos) &&
                        (most <= 0 || inputs.node_prices[s] <= most) && !inputs.lost[s] &&
                        (!reads_captions || inputs.knows_captions[s]) &&
                        !was_too_small(slot, by_name);
      view.speed.push_back(fits ? speeds[s].operations_per_second : 0);
    }
    if (std::ranges::any_of(view.speed, [](double speed) { return speed > 0; })) break;
  }
  // Of one that holds a number of cards these only say when it will end.
  for (std::size_t cards = 2; run.cards_per_expert() != 1 && cards <= inputs.most_slots;
       cards *= 2) {
    std::vector<double>& gains = view.gains.emplace_back();
    for (const Speeds::Slot& slot : inputs.slots)
      gains.push_back(speeds_.gain(job, slot, static_cast<std::uint32_t>(cards)));
  }
  inputs.jobs.push_back(std::move(view));
  inputs.operations.push_back(job.operations);
  inputs.speeds.push_back(std::move(speeds));
  return at->second;
}

bool Leases::may_stop(const Node& node) const {
  return node.leases->empty() && awaited_ && !awaited_->contains(node.id()) &&
         !context.must_reschedule && !roster_.is_recovering() && !copies_.rests_on(node);
}

// As far as is known: the last holder has all of them, and who has a copy says
// how much of it.
std::map<NodeId, double> Leases::lacks(const Expert& expert, std::uint64_t shard_bytes) const {
  std::map<NodeId, double> lacks;
  const auto add = [&](const NodeId& node) {
    const auto& held = roster_.at(node).replicas->held;
    const auto found = held.find(*Hash::from_raw(expert.head()));
    if (found == held.end()) return;
    const std::uint64_t whole = expert.record->checkpoints(0).bytes();
    const std::uint64_t has = found->second.durable ? whole : std::min(found->second.bytes, whole);
    lacks[node] = static_cast<double>(whole - has) +
                  static_cast<double>(found->second.has_shards ? 0 : shard_bytes);
  };
  if (expert.has_head()) {
    for (const NodeId& node : expert.copies->places) add(node);
    if (expert.copies->spare) add(*expert.copies->spare);
  }
  const NodeId last = expert.has_lease() ? expert.holder() : NodeId(expert.record->last_node());
  if (!last.empty()) lacks[last] = 0;
  return lacks;
}

SchedulableExpert Leases::view_of(Inputs& inputs, const Run& run, const Expert& expert) const {
  const pb::RunSpec& spec = run.record->spec();
  SchedulableExpert view;
  view.id = expert.id();
  view.run_name = spec.name();
  view.step = expert.step();
  view.steps_target = run.record->steps_target();
  view.wanted = run.wants(expert);
  if (!view.wanted) view.unwanted_because = unwanted_because(run, expert);
  view.job = job_index(inputs, run, expert.record->index());
  const Step left = view.steps_target - std::min(view.steps_target, view.step);
  view.work = inputs.operations[view.job] * static_cast<double>(left);
  view.turn_rounds = spec.turn_rounds();
  if (spec.turn_seconds() > 0) view.turn_seconds = spec.turn_seconds();
  view.rounds_in_turn = expert.record->lease().rounds();
  view.dollars_per_hour = spec.budget_dollars_per_hour();
  view.yields = expert.lease->yield;
  view.seconds_in_turn =
      std::chrono::duration<double>(now.boot - expert.lease->granted.value_or(now.boot)).count();
  const auto starts = start_seconds_.find(run.id());
  view.start_seconds = starts == start_seconds_.end() ? kStartSeconds : starts->second;
  const auto [shards, is_new] = inputs.shard_bytes.try_emplace(run.id());
  if (is_new) shards->second = datasets_.bytes_of_files(run);
  const std::uint64_t shard_bytes = shards->second[expert.record->index()];
  view.lacks = lacks(expert, shard_bytes);
  view.bytes = static_cast<double>(shard_bytes);
  if (expert.has_head()) view.bytes += static_cast<double>(expert.record->checkpoints(0).bytes());
  if (expert.held()) view.holder = SlotId{expert.holder(), expert.record->lease().slot()};
  view.reserved = expert.lease->reserved;
  view.cards = run.cards_per_expert();
  view.batch = std::max(1U, run.training_of(expert.record->index()).batch_size());
  view.more.assign(expert.record->lease().more_slots().begin(),
                   expert.record->lease().more_slots().end());
  view.rounds_of_width = expert.record->lease().rounds_of_width();
  view.at_commit = expert.record->lease().rounds() != expert.lease->rounds_seen;
  view.stands_by = expert.copies->stands_by;
  for (const auto& [node, avoided] : expert.lease->avoid) {
    const Node* known = roster_.find(node);
    if (known != nullptr && known->record->incarnation() == avoided.incarnation)
      view.avoid.insert(node);
  }
  return view;
}

Schedule Leases::plan() const {
  Inputs inputs;
  add_nodes(inputs);
  std::vector<SchedulableExpert> experts;
  for (const auto& [id, run] : runs_.all()) {
    for (const Expert& expert : run.experts) experts.push_back(view_of(inputs, run, expert));
  }
  Schedule planned = schedule(experts, inputs.nodes, inputs.jobs);
  for (std::size_t e = 0; e < experts.size(); ++e) {
    Why& why = planned.why[e];
    if (!why.slot) continue;
    const Speed& speed = inputs.speeds[experts[e].job][*why.slot];
    why.reason += text("; its speed is ", human_speed(speed.operations_per_second), ", ",
                       to_string(speed.from), experts[e].more.empty() ? "" : ", of one card");
  }
  return planned;
}

Duration Leases::next_rescheduling(Duration latest) const {
  return context.must_reschedule ? std::min(latest, std::max(reschedule_after_, now.boot)) : latest;
}

void Leases::reschedule() {
  if (!context.must_reschedule || now.boot < reschedule_after_) return;
  context.must_reschedule = false;
  if (roster_.all().size() > config.large_fleet)
    reschedule_after_ =
        now.boot + config.reschedule_pause * static_cast<std::int64_t>(roster_.all().size());
  const Schedule planned = plan();
  awaited_ = planned.awaited;
  for (const Why& why : planned.why) {
    LeaseState& its = state(runs_.at(why.expert));
    its.why = why.reason;
    its.seconds_left = why.seconds_left;
    if (!its.granted) its.granted = its.progressed = its.committed = now.boot;
    its.rounds_seen = runs_.at(why.expert).record->lease().rounds();
  }
  tell_lost();
  for (const Resize& resized : planned.resizes) resize(runs_.at(resized.expert), resized);
  for (const Grant& granted : planned.grants) grant(runs_.at(granted.expert), granted);
  keep_reservations(planned);
  apply_yields(planned);
  for (auto& [id, run] : runs_.all()) update_run_state(run);
  for (auto& [id, node] : roster_.all()) roster_.check_drained(node);
  copies_.place();
}

void Leases::tell_lost() {
  for (const Lost& loss : lost_) {
    const Expert* expert = runs_.find_expert(loss.expert);
    if (expert != nullptr)
      events_.tell(loss.kind, text(loss.reason, "; the expert ", expert->lease->why), loss.node,
                   expert, expert->step());
  }
  lost_.clear();
}

void Leases::grant(Expert& expert, const Grant& granted) {
  const NodeId from(expert.record->last_node());
  if (expert.has_lease()) {  // lapsed: its holder is fenced from here on
    const NodeId before = expert.holder();
    overtake(expert);
    lose_uncommitted(expert);
    commits_.drop_pending(expert);
    context.remetered.insert(before);
    roster_.at(before).leases.edit().erase(expert.id());
    roster_.assignment_changed(before);
    roster_.check_drained(roster_.at(before));
  }
  Node& node = roster_.at(granted.slot.node);
  raise_epoch(expert);
  stored::Lease& lease = *expert.record.change().mutable_lease();
  lease.set_node(node.id().str());
  lease.set_slot(granted.slot.slot);
  lease.set_incarnation(node.record->incarnation());
  lease.set_rounds(0);
  lease.set_rounds_of_width(0);
  lease.mutable_more_slots()->Assign(granted.more.begin(), granted.more.end());
  expert.record.change().set_last_node(node.id().str());
  LeaseState& its = state(expert);
  its.lapsed = its.yield = its.asked_back = false;
  its.why = granted.reason;
  its.grant_batch = context.batch + 1;
  its.granted = its.progressed = its.committed = now.boot;
  its.stepped_from = expert.step();
  its.fetched = 0;
  its.granted_here = true;
  its.granted_lacks = granted.lacks;
  its.granted_kept = its.reserved == granted.slot;
  its.trains_since.reset();
  its.trained = 0;
  context.remetered.insert(node.id());
  node.leases.edit().insert(expert.id());
  regranted_.insert(expert.id());
  roster_.assignment_changed(node.id());
  events_.tell(EventKind::kGranted, granted.reason, node.record->name(), &expert, expert.step());
  if (its.granted_kept && roster_.find(from) != nullptr) {
    events_.tell(EventKind::kMoved,
                 text("from ", roster_.at(from).record->name(), ": it ", its.reserved_because),
                 node.record->name(), &expert, expert.step());
  }
}

// At the same epoch: its node goes on from what it has trained.
void Leases::resize(Expert& expert, const Resize& resized) {
  stored::Lease& lease = *expert.record.change().mutable_lease();
  lease.mutable_more_slots()->Assign(resized.more.begin(), resized.more.end());
  lease.set_rounds_of_width(0);
  const Node& node = roster_.at(expert.holder());
  context.remetered.insert(node.id());
  roster_.assignment_changed(node.id());
  events_.tell(EventKind::kLeaseResized, resized.reason, node.record->name(), &expert,
               expert.step());
}

// Reservations last as long as each schedule confirms them.
void Leases::keep_reservations(const Schedule& planned) {
  std::map<ExpertId, const SlotId*> kept;
  for (const Reservation& each : planned.reservations) kept[each.expert] = &each.slot;
  for (auto& [id, run] : runs_.all()) {
    for (Expert& expert : run.experts) {
      const auto slot = kept.find(expert.id());
      if (slot == kept.end()) {
        if (expert.lease->reserved) state(expert).reserved.reset();
        continue;
      }
      if (expert.lease->reserved == *slot->second) continue;
      state(expert).reserved = *slot->second;
      state(expert).reserved_because = expert.lease->why;
    }
  }
}

void Leases::hear(const Node& node, const pb::SlotStatus& status) {
  tell_overtaken(node, status);
  Expert* expert = runs_.find_expert(RunId(status.run()), status.expert());
  if (expert == nullptr || !expert->is_held_by(node, Epoch(status.epoch()))) return;
  LeaseState& its = state(*expert);
  const bool trains = status.phase() == pb::SLOT_TRAINING;
  const Run& run = runs_.of(*expert);
  const Step step = std::min<Step>(status.step(), run.record->steps_target());
  hear_progress(*expert, step, status.fetched_bytes());
  // It trains steps again that an engine had trained when it ended.
  if (trains && step < its.trained) {
    spending_.lose(run, its.trained - std::max(step, std::min(its.trained, expert->step())));
    its.trained = step;
  }
  its.trained = std::max(its.trained, step);
  if (!trains || its.trains_since) return;
  its.trains_since = now.boot;
  its.trains_from = expert->step();
  if (!its.granted_here) return;
  double& seconds = start_seconds_.try_emplace(expert->id().run, kStartSeconds).first->second;
  const double took = std::chrono::duration<double>(now.boot - *its.granted).count();
  const double started = std::max(0.0, took - its.granted_lacks / roster_.fetch_rate(node));
  seconds += kNewestStart * (started - seconds);
}

void Leases::apply_yields(const Schedule& planned) {
  std::set<ExpertId> yields;
  for (const Yield& yield : planned.yields) yields.insert(yield.expert);
  for (auto& [id, run] : runs_.all()) {
    for (Expert& expert : run.experts) {
      const bool wanted = expert.held() && yields.contains(expert.id());
      if (expert.lease->yield == wanted) continue;
      state(expert).yield = wanted;
      state(expert).asked_back |= wanted;
      if (expert.has_lease()) roster_.assignment_changed(expert.holder());
    }
  }
}

void Leases::update_run_state(Run& run) {
  const std::string state = state_of(run);
  std::string reason = run.record->reason();
  if (run.active()) {
    reason = state == "running" ? "an expert is being trained" : "no expert has a node";
    for (const Expert& expert : run.experts) {
      if (state == "waiting" && run.wants(expert)) {
        reason = text(run.job_name(expert.record->index()), " ", expert.lease->why);
        break;
      }
    }
    if (reason != run.record->reason()) run.record.change().set_reason(reason);
  }
  if (state == run.record->state()) return;
  run.record.change().set_state(state);
  events_.tell_run(EventKind::kRunState, text(state, reason.empty() ? "" : ": ", reason), run);
}

}  // namespace skerry::coordinator
