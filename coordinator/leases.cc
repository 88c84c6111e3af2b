// The life of a lease: (run, expert) → (node, slot, incarnation, epoch).
//
//   none    → held     grant (settle.cc): the epoch is raised, and durable before the grant leaves
//   held    → lapsed   its holder was silent past its time, or its connection closed: nobody else has it yet, its
//                      work still counts, and the scheduler may give it to another
//   lapsed  → held     its holder is heard again before that: the same epoch, nothing lost
//   held, lapsed → none   returned, finished, evicted, revoked, started again
#include "base/planted.h"
#include "base/text.h"
#include "coordinator/machine.h"
#include "protocol/limits.h"

namespace skerry::coordinator {

bool Machine::holds(const Expert& expert, const Node& node, std::uint64_t epoch) const {
  if (!expert.has_lease()) return false;
  const stored::Lease& lease = expert.record->lease();
  return (lease.node() == node.record->id() || planted("holder_not_checked")) &&
         (lease.incarnation() == node.record->incarnation() || planted("holder_not_checked") ||
          planted("incarnation_ignored")) &&
         expert.record->epoch() == epoch;
}

void Machine::resume(Expert& expert, Node& node) {
  expert.lapsed = false;
  unsettled = true;
  events.tell("lease_resumed", "its holder came back before anybody else had it: nothing is lost",
              node.record->name(), &expert, expert.step());
}

void Machine::lapse(Expert& expert, const std::string& reason) {
  expert.lapsed = true;
  unsettled = true;
  lost.push_back(
      {expert.id(), "lease_lost", roster.at(expert.record->lease().node()).record->name(), reason});
}

void Machine::release(Expert& expert, const std::string& kind, const std::string& reason) {
  Node& node = roster.at(expert.record->lease().node());
  drop_pending(expert);
  node.leases.erase(expert.id());
  roster.assignment_changed(node.record->id());
  expert.record.change().set_last_node(node.record->id());
  expert.record.change().clear_lease();
  expert.lapsed = false;
  expert.yield = expert.asked_back = false;
  unsettled = true;
  lost.push_back({expert.id(), kind, node.record->name(), reason});
  roster.check_drained(node);
}

void Machine::release_all(Node& node, const std::string& kind, const std::string& reason, bool raise) {
  for (const ExpertId& id : std::set(node.leases)) {
    Expert& expert = runs.at(id);
    if (raise) overtake(expert);
    release(expert, kind, reason);
    if (raise) raise_epoch(expert);
  }
}

void Machine::overtake(Expert& expert) {
  constexpr std::size_t kRemembered = 16;
  expert.overtaken.emplace_back(expert.record->lease().node(), expert.record->epoch());
  if (expert.overtaken.size() > kRemembered) expert.overtaken.pop_front();
}

// A node that still trains what it lost without knowing. It discards by itself; people are told that it did.
void Machine::tell_overtaken(const Node& node, const pb::SlotStatus& status) {
  Expert* expert = runs.find_expert(status.run(), status.expert());
  if (expert == nullptr || expert->overtaken.empty()) return;
  const auto lost_it =
      std::ranges::find(expert->overtaken, std::pair(node.record->id(), std::uint64_t{status.epoch()}));
  if (lost_it == expert->overtaken.end()) return;
  expert->overtaken.erase(lost_it);
  tell_fenced(*expert, node, status.epoch(), status.step(),
              text("it still trained at step ", status.step(), " of epoch ", status.epoch(), ", but epoch ",
                   expert->record->epoch(), " is current: that work is discarded"));
}

void Machine::raise_epoch(Expert& expert) {
  const Epoch epoch(expert.record->epoch());
  if (planted("epoch_not_raised") && epoch.value() != 0) return;
  const std::uint64_t counter =
      std::max(epoch.counter() + 1, static_cast<std::uint64_t>(meta->restored_unix_ms()));
  expert.record.change().set_epoch(Epoch(static_cast<std::uint16_t>(meta->generation()), counter).value());
}

// A restored backup may be older than grants it does not know: its leases are of another generation, and end.
void Machine::end_leases_of_old_generations() {
  for (auto& [id, run] : runs.all()) {
    for (Expert& expert : run.experts) {
      if (!expert.has_lease() || Epoch(expert.record->epoch()).generation() == meta->generation()) continue;
      if (planted("restored_leases_kept")) continue;
      release(expert, "lease_lost", "the coordinator was restored from a backup");
      raise_epoch(expert);
    }
  }
}

// A node has seen epochs of a later generation: a later backup was restored before this one.
void Machine::go_beyond(const std::string& node, std::uint64_t seen) {
  if (seen <= meta->generation() || seen >= generations_end() || planted("generation_not_taken")) return;
  meta.change().set_generation(static_cast<std::uint32_t>(seen) + 1);
  events.tell("generation_raised",
              text("it has seen epochs of generation ", seen,
                   ": a later backup was restored before; they are of generation ", meta->generation(),
                   " from here on"),
              node);
  end_leases_of_old_generations();
}

// Silence, by the coordinator's own clock and never within the recovery window.
void Machine::expire() {
  if (roster.is_recovering()) return;
  const Duration silence =
      planted("margin_too_small") ? config.lease - config.grace : config.lease + config.grace;
  for (auto& [id, node] : roster.all()) {
    if (now.boot < node.session->seen + silence) continue;
    if (!node.record->present() && (node.leases.empty() || planted("lapsed_forgotten"))) continue;
    if (node.record->present() && roster.has_drained(node)) {
      roster.leave(node);
      continue;
    }
    const std::string reason =
        text(node.record->name(), " has been silent for ", human_duration(now.boot - node.session->seen));
    if (node.record->present()) {
      roster.depart(node, false);
      events.tell("node_lost", reason, node.record->name());
    }
    // Also of a node that was lost before this start: that its leases had lapsed is not remembered.
    for (const ExpertId& held : node.leases) {
      Expert& expert = runs.at(held);
      if (!expert.lapsed) lapse(expert, reason);
    }
  }
}

// A closed connection without a reconnect: sooner than silence, and bounded, since many at once are rather the network.
void Machine::end_early() {
  const std::vector<std::string> unreturned = roster.take_unreturned();
  if (unreturned.empty()) return;
  std::size_t left = early_ends_left();
  for (const std::string& id : unreturned) {
    Node& node = roster.at(id);
    if (left == 0) continue;
    --left;
    early_ends.push_back(now.boot);
    roster.depart(node, false);
    const std::string reason =
        text(node.record->name(), " closed its connection and did not come back within ",
             human_duration(config.reconnect));
    events.tell("node_lost", reason, node.record->name());
    for (const ExpertId& held : node.leases) {
      Expert& expert = runs.at(held);
      if (!expert.lapsed) lapse(expert, reason);
    }
  }
}

std::size_t Machine::early_ends_left() {
  if (roster.is_recovering() && !planted("recovery_window_ignored")) return 0;
  if (now.boot < lagged_until) return 0;
  if (planted("early_ends_unbounded")) return roster.all().size();
  while (!early_ends.empty() && now.boot - early_ends.front() >= config.early_end_window)
    early_ends.pop_front();
  const auto fleet =
      std::ranges::count_if(roster.all(), [](const auto& node) { return node.second.record->present(); });
  // As it was before those of this window.
  const double whole = static_cast<double>(fleet) + static_cast<double>(early_ends.size());
  const auto share = static_cast<std::size_t>(config.early_end_share * whole);
  const std::size_t most = std::max(config.early_ends, share);
  return most - std::min(most, early_ends.size());
}

pb::Assignment Machine::assignment_of(const Node& node) const {
  pb::Assignment assignment;
  assignment.set_version(node.session->version);
  for (const ExpertId& id : node.leases) {
    const Run& run = runs.at(id.run.str());
    const Expert& expert = run.experts[id.index];
    auto& slot = *assignment.add_slots();
    slot.set_slot(expert.record->lease().slot());
    slot.set_run(id.run.str());
    slot.set_expert(id.index);
    slot.set_epoch(expert.record->epoch());
    slot.set_attempt(expert.record->attempt());
    *slot.mutable_spec() = run.record->spec();
    *slot.mutable_spec()->mutable_train() = run.training_of(id.index);
    const bool is_router = run.is_router(id.index);
    *slot.mutable_model() = is_router ? router_model(run.record->model(), id.index) : run.record->model();
    for (const pb::DatasetFile* file : datasets.files_of(run, id.index)) {
      *slot.add_shards() = file->object();
      if (is_router) slot.add_partitions(static_cast<std::uint32_t>(file->partition()));
    }
    if (!expert.head().empty()) *slot.mutable_head() = object_ref(expert.record->checkpoints(0));
    slot.set_head_step(expert.step());
    slot.set_steps_target(run.record->steps_target());
    slot.set_yield_after_commit(expert.yield);
  }
  for (pb::Replica& replica : replicas_of(node)) *assignment.add_replicas() = std::move(replica);
  return assignment;
}

void Machine::get_assignment(Node& node, const Received& event) {
  pb::ControlReply message;
  message.set_id(event.request.id());
  *message.mutable_assignment() = assignment_of(node);
  reply(event.connection, std::move(message));
}

}  // namespace skerry::coordinator
