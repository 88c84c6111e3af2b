// SPDX-License-Identifier: Apache-2.0
#include "coordinator/rooms/leases.h"

#include <algorithm>

#include "base/text.h"

namespace skerry::coordinator {

void Leases::resume_if_lapsed(Expert& expert, const Node& node) {
  if (!expert.lease->lapsed) return;
  state(expert).lapsed = false;
  context.must_reschedule = true;
  context.remetered.insert(node.id());
  events_.tell(EventKind::kLeaseResumed,
               "its holder came back before anybody else had it: nothing is lost",
               node.record->name(), &expert, expert.step());
}

void Leases::resume_all(Node& node, std::uint32_t slots) {
  for (const ExpertId& id : std::set(*node.leases)) {
    Expert& expert = runs_.at(id);
    if (expert.record->lease().slot() >= slots) {
      release(
          expert, EventKind::kLeaseLost,
          text(node.record->name(), " has no slot ", expert.record->lease().slot(), " any more"));
    } else {
      keep_slots(expert, node);
      resume_if_lapsed(expert, node);
    }
  }
}

// The same process may offer other slots than before; one of another version
// may not know what a further slot is.
void Leases::keep_slots(Expert& expert, const Node& node) {
  const stored::Lease& lease = expert.record->lease();
  Resize kept{.expert = expert.id(), .more = {}, .reason = ""};
  for (const std::uint32_t slot : lease.more_slots()) {
    const auto& slots = node.session->slots;
    if (node.session->knows_cards && slot < slots.size() && !slots[slot].alone() &&
        slots[slot].device() == slots[lease.slot()].device())
      kept.more.push_back(slot);
  }
  if (static_cast<int>(kept.more.size()) == lease.more_slots_size()) return;
  kept.reason = text("goes on with ", 1 + kept.more.size(),
                     kept.more.empty() ? " card: " : " cards: ", node.record->name(),
                     " offers fewer slots than before");
  resize(expert, kept);
}

void Leases::lapse_all(const Node& node, const std::string& reason) {
  for (const ExpertId& held : *node.leases) {
    Expert& expert = runs_.at(held);
    if (expert.lease->lapsed) continue;
    state(expert).lapsed = true;
    context.must_reschedule = true;
    context.remetered.insert(node.id());
    lost_.push_back({expert.id(), EventKind::kLeaseLost, node.record->name(), reason});
  }
}

void Leases::end_finished(Expert& expert) {
  Run& run = runs_.of(expert);
  if (!expert.has_lease() || !run.is_at_target(expert)) return;
  release(expert, EventKind::kExpertDone, text("step ", expert.step(), " was the last"));
  if (run.active() && run.is_all_at_target())
    runs_.set_wanted(run, stored::WANTED_DONE,
                     text("every expert has reached step ", expert.step()));
}

void Leases::avoid(Expert& expert, const Node& node) {
  state(expert).avoid[node.id()] = {node.record->incarnation(), now.boot + config.avoid};
}

bool Leases::may_renew(const Expert& expert) const {
  return expert.lease->grant_batch <= context.persisted;
}

void Leases::tick() {
  end_early();
  expire();
  end_stalled();
  for (auto& [id, run] : runs_.all()) {
    for (Expert& expert : run.experts) {
      const auto gone = std::erase_if(state(expert).avoid, [&](const auto& avoided) {
        return avoided.second.until <= now.boot;
      });
      if (gone > 0) context.must_reschedule = true;
    }
  }
}

void Leases::batch_numbered() {
  for (const ExpertId& id : std::exchange(regranted_, {})) {
    if (Expert* expert = runs_.find_expert(id)) state(*expert).grant_batch = context.batch;
  }
}

void Leases::release(Expert& expert, EventKind kind, const std::string& reason) {
  Node& node = roster_.at(expert.holder());
  commits_.drop_pending(expert);
  lose_uncommitted(expert);
  context.remetered.insert(node.id());
  node.leases.edit().erase(expert.id());
  roster_.assignment_changed(node.id());
  expert.record.change().set_last_node(node.id().str());
  expert.record.change().clear_lease();
  state(expert).lapsed = state(expert).yield = state(expert).asked_back = false;
  state(expert).trains_since.reset();
  context.must_reschedule = true;
  lost_.push_back({expert.id(), kind, node.record->name(), reason});
  roster_.check_drained(node);
}

void Leases::release_all(Node& node, EventKind kind, const std::string& reason, bool raise) {
  for (const ExpertId& id : std::set(*node.leases)) {
    if (raise) {
      take_away(runs_.at(id), kind, reason);
    } else {
      release(runs_.at(id), kind, reason);
    }
  }
}

void Leases::take_away(Expert& expert, EventKind kind, const std::string& reason) {
  overtake(expert);
  release(expert, kind, reason);
  raise_epoch(expert);
}

// Its lease ends, or its steps since the head are discarded.
void Leases::lose_uncommitted(Expert& expert) {
  const Step trained = std::exchange(state(expert).trained, 0);
  if (trained > expert.step()) spending_.lose(runs_.of(expert), trained - expert.step());
}

void Leases::lose_beyond(const Node& node, const ExpertId& id, Epoch epoch, Step step) {
  Expert* expert = runs_.find_expert(id);
  if (expert == nullptr) return;
  const Run& run = runs_.of(*expert);
  for (Overtaken& each : state(*expert).overtaken) {
    const Step most = std::min(step, run.record->steps_target());
    if (each.node != node.id() || each.epoch != epoch || most <= each.trained) continue;
    spending_.lose(run, most - each.trained);
    each.trained = most;
  }
}

void Leases::overtake(Expert& expert) {
  constexpr std::size_t kRemembered = 16;
  state(expert).overtaken.push_back(
      {expert.holder(), expert.epoch(), std::max(expert.step(), expert.lease->trained)});
  if (expert.lease->overtaken.size() > kRemembered) state(expert).overtaken.pop_front();
}

void Leases::tell_overtaken(const Node& node, const pb::SlotStatus& status) {
  Expert* expert = runs_.find_expert(RunId(status.run()), status.expert());
  if (expert == nullptr) return;
  const Epoch epoch(status.epoch());
  lose_beyond(node, expert->id(), epoch, status.step());
  const auto told = [&](const Overtaken& each) {
    return each.node == node.id() && each.epoch == epoch;
  };
  if (std::erase_if(state(*expert).overtaken, told) == 0) return;
  commits_.tell_fenced(
      *expert, node, epoch, status.step(),
      text("it still trained at step ", status.step(), " of epoch ", epoch, ", but epoch ",
           expert->epoch(), " is current: that work is discarded"));
}

void Leases::raise_epoch(Expert& expert) {
  const Epoch epoch = expert.epoch();
  const std::uint64_t counter =
      std::max(epoch.counter() + 1, static_cast<std::uint64_t>(context.meta->restored_unix_ms()));
  expert.record.change().set_epoch(
      Epoch(static_cast<std::uint16_t>(context.meta->generation()), counter).value());
}

void Leases::end_leases_of_old_generations() {
  for (auto& [id, run] : runs_.all()) {
    for (Expert& expert : run.experts) {
      if (!expert.has_lease() || expert.epoch().generation() == context.meta->generation())
        continue;
      release(expert, EventKind::kLeaseLost, "the coordinator was restored from a backup");
      raise_epoch(expert);
    }
  }
}

void Leases::go_beyond(const std::string& node, std::uint64_t seen) {
  if (seen <= context.meta->generation() || seen >= context.generations_end()) return;
  context.meta.change().set_generation(static_cast<std::uint32_t>(seen) + 1);
  events_.tell(EventKind::kGenerationRaised,
               text("it has seen epochs of generation ", seen,
                    ": a later backup was restored before; they are of generation ",
                    context.meta->generation(), " from here on"),
               node);
  end_leases_of_old_generations();
}

// Silence, by the coordinator's own clock and never within the recovery window.
void Leases::expire() {
  if (roster_.is_recovering()) return;
  const Duration silence = config.lease + config.grace;
  for (auto& [id, node] : roster_.all()) {
    if (now.boot < node.session->seen + silence) continue;
    if (!node.record->present() && node.leases->empty()) continue;
    if (node.record->present() && roster_.has_drained(node)) {
      roster_.leave(node);
      continue;
    }
    const std::string reason = text(node.record->name(), " has been silent for ",
                                    human_duration(now.boot - node.session->seen));
    if (node.record->present()) {
      roster_.depart(node, false);
      events_.tell(EventKind::kNodeLost, reason, node.record->name());
    }
    // Also of a node that was lost before this start: that its leases had
    // lapsed is not remembered.
    lapse_all(node, reason);
  }
}

// A closed connection without a reconnect: sooner than silence, and bounded,
// since many at once are rather the network.
void Leases::end_early() {
  const std::vector<NodeId> unreturned = roster_.take_unreturned();
  if (unreturned.empty()) return;
  std::size_t left = early_ends_left();
  for (const NodeId& id : unreturned) {
    Node& node = roster_.at(id);
    if (left == 0) continue;
    --left;
    early_ends_.push_back(now.boot);
    roster_.depart(node, false);
    const std::string reason =
        text(node.record->name(), " closed its connection and did not come back within ",
             human_duration(config.reconnect));
    events_.tell(EventKind::kNodeLost, reason, node.record->name());
    lapse_all(node, reason);
  }
}

std::size_t Leases::early_ends_left() {
  if (roster_.is_recovering()) return 0;
  if (now.boot < lagged_until_) return 0;
  while (!early_ends_.empty() && now.boot - early_ends_.front() >= config.early_end_window)
    early_ends_.pop_front();
  const auto fleet = std::ranges::count_if(
      roster_.all(), [](const auto& node) { return node.second.record->present(); });
  // As it was before those of this window.
  const double whole = static_cast<double>(fleet) + static_cast<double>(early_ends_.size());
  const auto share = static_cast<std::size_t>(config.early_end_share * whole);
  const std::size_t most = std::max(config.early_ends, share);
  return most - std::min(most, early_ends_.size());
}

pb::Assignment Leases::assignment_of(const Node& node) const {
  pb::Assignment assignment;
  assignment.set_version(node.session->version);
  for (const ExpertId& id : *node.leases) {
    const Run& run = runs_.at(id.run);
    const Expert& expert = run.experts[id.index];
    auto& slot = *assignment.add_slots();
    slot.set_slot(expert.record->lease().slot());
    *slot.mutable_more_slots() = expert.record->lease().more_slots();
    slot.set_run(id.run.str());
    slot.set_expert(id.index);
    slot.set_epoch(expert.record->epoch());
    slot.set_attempt(expert.record->attempt());
    *slot.mutable_spec() = run.record->spec();
    *slot.mutable_spec()->mutable_train() = run.training_of(id.index);
    // Nodes of versions before this one refuse a turn of no rounds.
    slot.mutable_spec()->set_turn_rounds(std::max(1U, run.record->spec().turn_rounds()));
    const bool is_router = run.is_router(id.index);
    *slot.mutable_model() =
        is_router ? router_model(run.record->model(), id.index) : run.record->model();
    for (const pb::DatasetFile* file : datasets_.files_of(run, id.index)) {
      *slot.add_shards() = file->object();
      if (is_router) slot.add_partitions(static_cast<std::uint32_t>(file->partition()));
    }
    if (!expert.head().empty()) *slot.mutable_head() = object_ref(expert.record->checkpoints(0));
    slot.set_head_step(expert.step());
    slot.set_steps_target(run.record->steps_target());
    slot.set_yield_after_commit(expert.lease->yield);
  }
  for (pb::Replica& replica : copies_.replicas_of(node)) {
    const Run& run = runs_.at(RunId(replica.run()));
    const Expert& expert = run.experts[replica.expert()];
    if (expert.copies->stands_by == node.id() && expert.head() == replica.object().manifest()) {
      for (const pb::DatasetFile* file : datasets_.files_of(run, replica.expert()))
        *replica.add_shards() = file->object();
    }
    *assignment.add_replicas() = std::move(replica);
  }
  return assignment;
}

}  // namespace skerry::coordinator
