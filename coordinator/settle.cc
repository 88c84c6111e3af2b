// After each event: what the scheduler says of the new state is made so, and people are told why.
#include "base/planted.h"
#include "base/text.h"
#include "coordinator/keys.h"
#include "coordinator/machine.h"

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

}  // namespace

Schedule Machine::plan() const {
  std::vector<SchedulableExpert> experts;
  for (const auto& [id, run] : runs.all()) {
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
      if (expert.held())
        view.holder = SlotId{NodeId(expert.record->lease().node()), expert.record->lease().slot()};
      if (!expert.head().empty()) {
        const Hash head = *Hash::from_raw(expert.head());
        const auto holds_head = [&](const std::string& node) {
          const auto& held = roster.at(node).held;
          const auto found = held.find(head);
          return found != held.end() && found->second.durable;
        };
        for (const std::string& node : expert.places) {
          if (holds_head(node)) view.warm.insert(NodeId(node));
        }
        if (!expert.spare.empty() && holds_head(expert.spare)) view.warm.insert(NodeId(expert.spare));
      }
      view.last_node =
          NodeId(expert.has_lease() ? expert.record->lease().node() : expert.record->last_node());
      for (const auto& [node, avoided] : expert.avoid) {
        const Node* known = roster.find(node);
        if (known != nullptr && known->record->incarnation() == avoided.incarnation) {
          view.avoid.insert(NodeId(node));
        }
      }
      experts.push_back(std::move(view));
    }
  }
  std::vector<SchedulableNode> usable;
  for (const auto& [id, node] : roster.all()) {
    if (!node.is_node() || (node.session->slots.empty() && node.leases.empty())) continue;
    SchedulableNode view;
    view.id = NodeId(id);
    view.name = node.record->name();
    for (std::uint32_t slot = 0; slot < node.session->slots.size(); ++slot) view.slots.push_back(slot);
    view.unusable_because = roster.unusable_because(node);
    view.usable = view.unusable_because.empty() ||
                  (planted("grants_to_cordoned") && roster.is_live(node) && !node.record->revoked());
    view.draining = node.record->draining() || node.session->self_draining;
    usable.push_back(std::move(view));
  }
  return schedule(experts, usable);
}

void Machine::settle() {
  if (!unsettled || now.boot < settle_after) return;
  unsettled = false;
  if (roster.all().size() > config.large_fleet)
    settle_after = now.boot + config.settle_pause * static_cast<std::int64_t>(roster.all().size());
  const Schedule planned = plan();
  for (const Why& why : planned.why) runs.at(why.expert).why = why.reason;
  tell_lost();
  for (const Grant& granted : planned.grants) grant(runs.at(granted.expert), granted);
  apply_yields(planned);
  for (auto& [id, run] : runs.all()) update_run_state(run);
  for (auto& [id, node] : roster.all()) roster.check_drained(node);
  place_copies();
}

void Machine::tell_lost() {
  for (const Lost& loss : lost) {
    const Expert* expert = runs.find_expert(loss.expert);
    if (expert != nullptr)
      events.tell(loss.kind, text(loss.reason, "; the expert ", expert->why), loss.node, expert,
                  expert->step());
  }
  lost.clear();
}

void Machine::grant(Expert& expert, const Grant& granted) {
  if (expert.has_lease()) {  // lapsed: its holder is fenced from here on
    const std::string before = expert.record->lease().node();
    overtake(expert);
    drop_pending(expert);
    roster.at(before).leases.erase(expert.id());
    roster.assignment_changed(before);
    roster.check_drained(roster.at(before));
  }
  Node& node = roster.at(granted.slot.node.str());
  raise_epoch(expert);
  stored::Lease& lease = *expert.record.change().mutable_lease();
  lease.set_node(granted.slot.node.str());
  lease.set_slot(granted.slot.slot);
  lease.set_incarnation(node.record->incarnation());
  lease.set_rounds(0);
  expert.record.change().set_last_node(node.record->id());
  expert.lapsed = false;
  expert.yield = expert.asked_back = false;
  expert.why = granted.reason;
  node.leases.insert(expert.id());
  regranted.insert(expert.id());
  expert.grant_batch = batch + 1;
  roster.assignment_changed(node.record->id());
  events.tell("granted", granted.reason, node.record->name(), &expert, expert.step());
}

void Machine::apply_yields(const Schedule& planned) {
  std::set<ExpertId> yields;
  for (const Yield& yield : planned.yields) {
    const Expert& expert = runs.at(yield.expert);
    const bool is_turn = runs.at(yield.expert.run.str()).active() && expert.held();
    if (!(planted("turn_never_ends") && is_turn)) yields.insert(yield.expert);
  }
  for (auto& [id, run] : runs.all()) {
    for (Expert& expert : run.experts) {
      const bool wanted = expert.held() && yields.contains(expert.id());
      if (expert.yield == wanted) continue;
      expert.yield = wanted;
      expert.asked_back |= wanted;
      if (expert.has_lease()) roster.assignment_changed(expert.record->lease().node());
    }
  }
}

void Machine::update_run_state(Run& run) {
  std::string state;
  switch (run.record->wanted()) {
    case stored::WANTED_PAUSED:
      state = "paused";
      break;
    case stored::WANTED_STOPPED:
      state = "stopped";
      break;
    case stored::WANTED_FAILED:
      state = "failed";
      break;
    case stored::WANTED_DONE:
      state = "done";
      break;
    default:
      state = std::ranges::any_of(run.experts, [](const Expert& expert) { return expert.held(); })
                  ? "running"
                  : "waiting";
  }
  if (state == run.record->state()) return;
  std::string reason = run.record->reason();
  if (run.active()) {
    reason = state == "running" ? "an expert is being trained" : "no expert has a node";
    for (const Expert& expert : run.experts) {
      if (state == "waiting" && run.wants(expert)) {
        reason = text(run.job_name(expert.record->index()), " ", expert.why);
        break;
      }
    }
    run.record.change().set_reason(reason);
  }
  run.record.change().set_state(state);
  events.tell_run(kRunState, text(state, reason.empty() ? "" : ": ", reason), run);
}

}  // namespace skerry::coordinator
