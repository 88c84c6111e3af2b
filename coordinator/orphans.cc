// Runs that only records know, as after a restore from a backup that is older than they are, and runs that a person deleted.
// Only a person's `run delete` withdraws an orphan; daemon/core.h says how long nodes keep its checkpoints.
#include "base/text.h"
#include "coordinator/machine.h"

namespace skerry::coordinator {

void Machine::hear_orphans(const std::vector<pb::RunRecord>& heard) {
  std::map<std::string, pb::RunRecord> known;
  for (const pb::RunRecord& run : heard) {
    if (runs.all().contains(run.run()) || runs.deleted().contains(run.run())) continue;
    if (known.size() >= config.runs) break;
    known[run.run()] = run;
    if (orphans.contains(run.run())) continue;
    events.tell("run_orphaned", text("run ", run.name(), " (", run.run(),
                                     "): nodes hold records of it, this coordinator "
                                     "does not know it; `skerry run list` shows it"));
  }
  orphans = std::move(known);
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
