// SPDX-License-Identifier: Apache-2.0
// After each event: what the scheduler says of the new state is carried out,
// and people are told why.
#include <algorithm>

#include "base/text.h"
#include "coordinator/rooms/leases.h"

namespace skerry::coordinator {
namespace {

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

Schedule Leases::plan() const {
  std::vector<SchedulableExpert> experts;
  for (const auto& [id, run] : runs_.all()) {
    for (const Expert& expert : run.experts) {
      SchedulableExpert view;
      view.id = expert.id();
      view.run_name = run.record->spec().name();
      view.step = expert.step();
      view.steps_target = run.record->steps_target();
      view.wanted = run.wants(expert);
      if (!view.wanted) view.unwanted_because = unwanted_because(run, expert);
      view.turn_rounds = run.record->spec().turn_rounds();
      view.rounds_in_turn = expert.record->lease().rounds();
      if (expert.held()) view.holder = SlotId{expert.holder(), expert.record->lease().slot()};
      if (!expert.head().empty()) {
        const Hash head = *Hash::from_raw(expert.head());
        const auto holds_head = [&](const NodeId& node) {
          const auto& held = roster_.at(node).replicas->held;
          const auto found = held.find(head);
          return found != held.end() && found->second.durable;
        };
        for (const NodeId& node : expert.copies->places) {
          if (holds_head(node)) view.warm.insert(node);
        }
        if (expert.copies->spare && holds_head(*expert.copies->spare))
          view.warm.insert(*expert.copies->spare);
      }
      view.last_node = expert.has_lease() ? expert.holder() : NodeId(expert.record->last_node());
      for (const auto& [node, avoided] : expert.lease->avoid) {
        const Node* known = roster_.find(node);
        if (known != nullptr && known->record->incarnation() == avoided.incarnation) {
          view.avoid.insert(node);
        }
      }
      experts.push_back(std::move(view));
    }
  }
  std::vector<SchedulableNode> usable;
  for (const auto& [id, node] : roster_.all()) {
    if (!node.is_node() || (node.session->slots.empty() && node.leases->empty())) continue;
    SchedulableNode view;
    view.id = id;
    view.name = node.record->name();
    for (std::uint32_t slot = 0; slot < node.session->slots.size(); ++slot)
      view.slots.push_back(slot);
    view.unusable_because = roster_.unusable_because(node);
    view.usable = view.unusable_because.empty();
    view.draining = node.record->draining() || node.session->self_draining;
    usable.push_back(std::move(view));
  }
  return schedule(experts, usable);
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
  for (const Why& why : planned.why) state(runs_.at(why.expert)).why = why.reason;
  tell_lost();
  for (const Grant& granted : planned.grants) grant(runs_.at(granted.expert), granted);
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
  if (expert.has_lease()) {  // lapsed: its holder is fenced from here on
    const NodeId before = expert.holder();
    overtake(expert);
    commits_.drop_pending(expert);
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
  expert.record.change().set_last_node(node.id().str());
  LeaseState& its = state(expert);
  its.lapsed = its.yield = its.asked_back = false;
  its.why = granted.reason;
  its.grant_batch = context.batch + 1;
  node.leases.edit().insert(expert.id());
  regranted_.insert(expert.id());
  roster_.assignment_changed(node.id());
  events_.tell(EventKind::kGranted, granted.reason, node.record->name(), &expert, expert.step());
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
  if (state == run.record->state()) return;
  std::string reason = run.record->reason();
  if (run.active()) {
    reason = state == "running" ? "an expert is being trained" : "no expert has a node";
    for (const Expert& expert : run.experts) {
      if (state == "waiting" && run.wants(expert)) {
        reason = text(run.job_name(expert.record->index()), " ", expert.lease->why);
        break;
      }
    }
    run.record.change().set_reason(reason);
  }
  run.record.change().set_state(state);
  events_.tell_run(EventKind::kRunState, text(state, reason.empty() ? "" : ": ", reason), run);
}

}  // namespace skerry::coordinator
