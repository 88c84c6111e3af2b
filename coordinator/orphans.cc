// Runs that only records know, as after a restore from a backup that is older than they are, and runs that a person deleted.
// Only a person's `run delete` withdraws an orphan; daemon/core.h says how long nodes keep its checkpoints.
#include "base/text.h"
#include "coordinator/machine.h"

namespace skerry::coordinator {

void Machine::hear_orphans(const std::vector<pb::RunRecord>& heard) {
  std::map<std::string, pb::RunRecord> known;
  for (const pb::RunRecord& run : heard) {
    if (runs.contains(run.run()) || deleted_runs.contains(run.run())) continue;
    if (known.size() >= config.runs) break;
    known[run.run()] = run;
    if (orphans.contains(run.run())) continue;
    tell("run_orphaned", text("run ", run.name(), " (", run.run(),
                              "): nodes hold records of it, this coordinator "
                              "does not know it; `skerry run list` shows it"));
  }
  orphans = std::move(known);
}

void Machine::remember_deletion(const std::string& id, const std::string& name) {
  stored::DeletedRun deleted;
  deleted.set_id(id);
  deleted.set_name(name);
  deleted.set_unix_ms(now.unix_ms);
  deleted_runs.insert({Tracked(std::move(deleted))});
  forget_deletions();
}

// No record of them is alive any more.
void Machine::forget_deletions() {
  const std::int64_t oldest = now.unix_ms - config.deleted_run_age / std::chrono::milliseconds(1);
  deleted_runs.erase_if([&](const auto& run) { return run.record->unix_ms() < oldest; });
  while (deleted_runs.size() > config.deleted_runs) {
    deleted_runs.erase(std::ranges::min_element(deleted_runs, {}, [](const auto& each) {
                         return each.second.record->unix_ms();
                       })->first);
  }
}

Result<const pb::RunRecord*> Machine::find_orphan(const std::string& name) const {
  if (const auto by_id = orphans.find(name); by_id != orphans.end()) return &by_id->second;
  const pb::RunRecord* found = nullptr;
  for (const auto& [id, orphan] : orphans) {
    if (orphan.name() != name) continue;
    if (found != nullptr)
      return fail(ErrorCode::kConflict, text("two orphans are named ", name, ", ", found->run(), " and ", id,
                                             "; say which by its id"));
    found = &orphan;
  }
  return found;
}

pb::RunInfo Machine::orphan_info(const pb::RunRecord& orphan) const {
  pb::RunInfo info;
  info.set_id(orphan.run());
  info.set_name(orphan.name());
  info.set_state("orphan");
  info.set_reason("nodes hold records of it, this coordinator does not know it");
  info.mutable_spec()->set_name(orphan.name());
  info.mutable_spec()->set_dataset(orphan.dataset());
  info.set_eta_seconds(-1);
  return info;
}

}  // namespace skerry::coordinator
