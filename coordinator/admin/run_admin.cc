// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"
#include "coordinator/admin/admin.h"
#include "coordinator/admin/views.h"
#include "protocol/limits.h"

namespace skerry::coordinator {
namespace {

Result<Run*> find_run(Rooms& rooms, const std::string& name) {
  ASSIGN_OR_RETURN(const Run* const run, coordinator::find_run(std::as_const(rooms), name));
  return &rooms.runs.at(run->id());
}

}  // namespace

AdminResult run_pause(Rooms& rooms, const pb::Named& request) {
  ASSIGN_OR_RETURN(Run* const run, find_run(rooms, request.name()));
  if (run->record->wanted() == stored::WANTED_PAUSED && !run->record->over_budget())
    return acknowledged();
  if (!run->active() && !run->record->over_budget())
    return fail(ErrorCode::kConflict, text("run ", request.name(), " is ", run->record->state(),
                                           ": it cannot be paused"));
  // More money does not resume what a person paused.
  rooms.runs.set_wanted(*run, stored::WANTED_PAUSED,
                        "by a person; leases end at their next commits");
  return acknowledged();
}

AdminResult run_resume(Rooms& rooms, const pb::Named& request) {
  ASSIGN_OR_RETURN(Run* const run, find_run(rooms, request.name()));
  if (run->active()) return acknowledged();
  if (run->record->wanted() != stored::WANTED_PAUSED) {
    return fail(ErrorCode::kConflict, text("run ", request.name(), " is ", run->record->state(),
                                           ": only a paused run can be resumed"));
  }
  if (rooms.spending.is_spent(*run)) {
    return fail(
        ErrorCode::kConflict,
        text("run ", request.name(), " has spent ", human_dollars(rooms.spending.dollars(*run)),
             " of its ", human_dollars(run->record->spec().budget_dollars()),
             ": `skerry run budget ", request.name(), " --dollars N` raises its budget"));
  }
  rooms.runs.resume(*run);
  return acknowledged();
}

AdminResult run_stop(Rooms& rooms, const pb::Named& request) {
  ASSIGN_OR_RETURN(Run* const run, find_run(rooms, request.name()));
  if (run->record->wanted() == stored::WANTED_STOPPED) return acknowledged();
  if (run->record->wanted() == stored::WANTED_DONE)
    return fail(ErrorCode::kConflict, text("run ", request.name(), " is done already"));
  rooms.runs.set_wanted(*run, stored::WANTED_STOPPED, "stopped by a person");
  for (Expert& expert : run->experts) {
    if (expert.has_lease())
      rooms.leases.release(expert, EventKind::kLeaseReturned, "the run was stopped");
  }
  return acknowledged();
}

namespace {

// One that was stopped or has failed takes no change; `because` says so.
Result<Run*> find_changeable(Rooms& rooms, const std::string& name, const char* because) {
  ASSIGN_OR_RETURN(Run* const run, find_run(rooms, name));
  if (run->record->wanted() == stored::WANTED_STOPPED ||
      run->record->wanted() == stored::WANTED_FAILED) {
    return fail(ErrorCode::kConflict,
                text("run ", name, " is ", run->record->state(), ": ", because));
  }
  return run;
}

}  // namespace

AdminResult run_extend(Rooms& rooms, const pb::RunExtend& request) {
  ASSIGN_OR_RETURN(Run* const run, find_changeable(rooms, request.run(), "it cannot be extended"));
  if (request.steps() == run->record->steps_target()) return acknowledged();
  if (request.steps() < run->record->steps_target() || request.steps() > protocol::kSteps) {
    return fail(ErrorCode::kInvalid,
                text("the new target must be above ", run->record->steps_target(),
                     " steps and at most ", protocol::kSteps));
  }
  run->record.change().set_steps_target(request.steps());
  run->record.change().mutable_spec()->mutable_train()->set_steps(request.steps());
  if (run->record->wanted() == stored::WANTED_DONE)
    rooms.runs.set_wanted(*run, stored::WANTED_ACTIVE, "");
  rooms.events.tell_run(EventKind::kRunExtended, text("to ", request.steps(), " steps an expert"),
                        *run);
  for (const Expert& expert : run->experts) {
    if (expert.has_lease()) rooms.roster.assignment_changed(expert.holder());
  }
  rooms.must_reschedule = true;
  return acknowledged();
}

AdminResult run_budget(Rooms& rooms, const pb::RunBudget& request) {
  ASSIGN_OR_RETURN(Run* const run,
                   find_changeable(rooms, request.run(), "it spends nothing any more"));
  TRY(rooms.spending.change(*run, request));
  return acknowledged();
}

// The ensemble is another from here on, and so is the router that follows from
// its partitions: nothing is trained for that.
AdminResult run_expert(Rooms& rooms, const pb::RunExpert& request) {
  ASSIGN_OR_RETURN(Run* const run, find_run(rooms, request.run()));
  if (trains_router(run->record->spec())) {
    return fail(ErrorCode::kConflict,
                text("run ", request.run(),
                     " trains its router, which knows its experts for good: only where "
                     "router.kind is \"analytic\" can experts leave and join"));
  }
  if (request.expert() >= run->experts.size()) {
    return fail(ErrorCode::kNotFound,
                text("run ", request.run(), " has no expert ", request.expert(),
                     ": they are numbered from 0 to ", run->experts.size() - 1));
  }
  Expert& expert = run->experts[request.expert()];
  if (expert.is_removed() != request.add()) return acknowledged();
  const auto others = [&](const Expert& each) { return &each != &expert && !each.is_removed(); };
  if (!request.add() && std::ranges::none_of(run->experts, others))
    return fail(ErrorCode::kConflict, text("expert ", request.expert(), " is the last of run ",
                                           request.run(), ": an ensemble needs one"));
  expert.record.change().set_removed(!request.add());
  rooms.must_reschedule = true;
  rooms.events.tell(request.add() ? EventKind::kExpertAdded : EventKind::kExpertRemoved,
                    request.add()
                        ? "by a person: it is of the ensemble and trains on"
                        : "by a person: its lease ends at its next commit, what it committed stays",
                    "", &expert, expert.step());
  const bool is_finished = run->is_all_at_target();
  if (is_finished && run->active())
    rooms.runs.set_wanted(*run, stored::WANTED_DONE,
                          "every expert of the ensemble has reached its target");
  if (!is_finished && run->record->wanted() == stored::WANTED_DONE)
    rooms.runs.set_wanted(*run, stored::WANTED_ACTIVE, "");
  return acknowledged();
}

AdminResult run_delete(Rooms& rooms, const pb::Named& request) {
  if (rooms.runs.find(request.name()) == nullptr) {
    ASSIGN_OR_RETURN(const pb::RunRecord* const orphan,
                     rooms.adoptions.find_orphan(request.name()));
    if (orphan != nullptr) {
      const RunId id(orphan->run());
      const std::string name = orphan->name();
      rooms.adoptions.forget_orphan(id);
      rooms.runs.remember_deletion(id, name);
      rooms.events.tell(EventKind::kRunDeleted,
                        text("the orphan ", name, " (", id, "): its records are withdrawn"));
      return acknowledged();
    }
  }
  ASSIGN_OR_RETURN(Run* const run, find_run(rooms, request.name()));
  if (run->active()) {
    return fail(ErrorCode::kConflict, text("run ", request.name(), " is ", run->record->state(),
                                           ": stop or pause it first"));
  }
  for (Expert& expert : run->experts) {
    if (expert.has_lease())
      rooms.leases.release(expert, EventKind::kLeaseReturned, "the run was deleted");
    for (const stored::Checkpoint& checkpoint : expert.record->checkpoints()) {
      rooms.objects.unname(checkpoint.manifest(), Purpose::kCheckpoint);
    }
  }
  rooms.events.tell_run(EventKind::kRunDeleted, "its checkpoints are removed", *run);
  rooms.spending.forget(run->id());
  rooms.history.forget(run->id());
  rooms.runs.erase(run->id());
  return acknowledged();
}

}  // namespace skerry::coordinator
