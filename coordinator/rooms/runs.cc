// SPDX-License-Identifier: Apache-2.0
#include "coordinator/rooms/runs.h"

#include <algorithm>
#include <set>

#include "base/clean_text.h"
#include "base/text.h"
#include "protocol/limits.h"

namespace skerry::coordinator {

const Run* Runs::find(const std::string& name_or_id) const {
  const auto named_so = ids_.find(name_or_id);
  const auto found = runs_.find(named_so == ids_.end() ? RunId(name_or_id) : named_so->second);
  return found == runs_.end() ? nullptr : &found->second;
}

const Expert* Runs::find_expert(const RunId& run, std::uint32_t index) const {
  const auto found = runs_.find(run);
  if (found == runs_.end() || index >= found->second.experts.size()) return nullptr;
  return &found->second.experts[index];
}

bool Runs::is_pending(const Hash& manifest) const {
  return std::ranges::any_of(runs_, [&](const auto& run) {
    return std::ranges::any_of(run.second.experts, [&](const Expert& expert) {
      return expert.commit->pending && expert.commit->pending->manifest == manifest;
    });
  });
}

Run& Runs::insert(Run run) {
  Run& inserted = runs_.insert(std::move(run));
  ids_[inserted.record->spec().name()] = inserted.id();
  for (Expert& expert : inserted.experts) {
    expert.record.list_in(expert_changes_);
    expert.record.change();
  }
  return inserted;
}

void Runs::erase(const RunId& id) {
  const Run& run = runs_.at(id);
  for (const Expert& expert : run.experts) expert_changes_.add(expert.id());
  remember_deletion(id, run.record->spec().name());
  ids_.erase(run.record->spec().name());
  runs_.erase(id);
  context.must_reschedule = true;
}

void Runs::set_wanted(Run& run, stored::Wanted wanted, const std::string& reason) {
  run.record.change().set_wanted(wanted);
  run.record.change().set_reason(clean_text(reason, protocol::kReasonBytes));
  run.record.change().set_over_budget(false);
  context.must_reschedule = true;
}

void Runs::resume(Run& run) {
  const bool all = run.is_all_at_target();
  set_wanted(run, all ? stored::WANTED_DONE : stored::WANTED_ACTIVE,
             all ? "every expert had reached its target" : "");
}

void Runs::remember_deletion(const RunId& id, const std::string& name) {
  stored::DeletedRun deleted;
  deleted.set_id(id.str());
  deleted.set_name(name);
  deleted.set_unix_ms(now.unix_ms);
  deleted_.insert({Tracked(std::move(deleted))});
  forget_deletions();
}

void Runs::forget_deletions() {
  const std::int64_t oldest = now.unix_ms - config.deleted_run_age / std::chrono::milliseconds(1);
  deleted_.erase_if([&](const auto& run) { return run.record->unix_ms() < oldest; });
  while (deleted_.size() > config.deleted_runs) {
    deleted_.erase(std::ranges::min_element(deleted_, {}, [](const auto& each) {
                     return each.second.record->unix_ms();
                   })->first);
  }
}

std::string Runs::load(stored::Run record) {
  if (!ids_.emplace(record.spec().name(), id_of(record)).second) return "its name is another run's";
  if (record.wanted() == stored::WANTED_UNSPECIFIED) return "it has no state";
  Run run;
  run.experts.resize(record.experts());
  run.record = Tracked(std::move(record));
  runs_.load(std::move(run));
  return "";
}

std::string Runs::load(stored::Expert record) {
  const auto& checkpoints = record.checkpoints();
  for (int i = 0; i < checkpoints.size(); ++i) {
    if (!Hash::from_raw(checkpoints[i].manifest())) return "a checkpoint's manifest is not a hash";
    if (checkpoints[i].epoch() > record.epoch()) return "a checkpoint is of a later epoch";
    if (i > 0 && checkpoints[i].step() >= checkpoints[i - 1].step())
      return "checkpoints are out of order";
  }
  if (record.has_lease() && record.epoch() == 0) return "a lease without an epoch";
  std::set<std::uint32_t> slots = {record.lease().slot()};
  for (const std::uint32_t more : record.lease().more_slots()) {
    if (!slots.insert(more).second) return "a lease that names a slot twice";
  }
  const auto run = runs_.find(RunId(record.run()));
  if (run == runs_.end()) return "its run is missing";
  if (record.index() >= run->second.experts.size()) return "its run has fewer experts";
  Expert& expert = run->second.experts[record.index()];
  expert.record = Tracked(std::move(record));
  expert.record.list_in(expert_changes_);
  return "";
}

bool Expert::is_held_by(const Node& node, Epoch of) const {
  if (!has_lease()) return false;
  const stored::Lease& its = record->lease();
  return its.node() == node.id().str() && its.incarnation() == node.record->incarnation() &&
         epoch() == of;
}

std::string Run::job_name(std::uint32_t index) const {
  return is_router(index) ? "the router" : text("expert ", index);
}

pb::TrainSpec Run::training_of(std::uint32_t index) const {
  const pb::TrainSpec& train = record->spec().train();
  return is_router(index) ? router_training(train, record->model(), index) : train;
}

}  // namespace skerry::coordinator
