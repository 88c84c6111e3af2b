// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"
#include "coordinator/admin/admin.h"
#include "coordinator/admin/views.h"
#include "coordinator/rooms/run_spec.h"

namespace skerry::coordinator {
namespace {

Result<void> check_init(const Rooms& rooms, const pb::RunSpec& spec) {
  if (spec.init().empty()) return {};
  const Dataset* found = rooms.datasets.find(DatasetName(spec.init()));
  if (found == nullptr || !is_weights(found->record->content())) {
    return fail(ErrorCode::kNotFound, text("no weights ", spec.init(),
                                           " are here: `skerry run create` uploads the "
                                           "folder that model.init names"));
  }
  if (!found->record->ready())
    return fail(ErrorCode::kConflict,
                text("the weights ", spec.init(), " are still being uploaded"));
  return {};
}

}  // namespace

AdminResult run_create(Rooms& rooms, const pb::RunCreate& request) {
  const pb::RunSpec& spec = request.spec();
  TRY(check_spec(spec));
  const Dataset* dataset = rooms.datasets.find(DatasetName(spec.dataset()));
  if (dataset == nullptr)
    return fail(ErrorCode::kNotFound,
                text("no dataset ", spec.dataset(), "; see \"skerry dataset list\""));
  if (!dataset->record->ready())
    return fail(ErrorCode::kConflict, text("dataset ", spec.dataset(), " is still being uploaded"));
  if (is_weights(dataset->record->content()))
    return fail(ErrorCode::kInvalid, text(spec.dataset(), " holds weights, no images to train on"));
  TRY(check_init(rooms, spec));
  const std::uint32_t partitions = dataset->record->content().partitions();
  if (trains_router(spec) && partitions < 2)
    return fail(ErrorCode::kInvalid,
                "router.kind \"learned\" needs a dataset of two or more partitions");
  ASSIGN_OR_RETURN(const pb::ModelSpec model, model_for(spec, dataset->record->content()));

  pb::AdminReply reply;
  auto& answer = *reply.mutable_runs();
  if (const auto known = rooms.runs.ids().find(spec.name()); known != rooms.runs.ids().end()) {
    const Run& same = rooms.runs.at(known->second);
    if (same.record->spec().SerializeAsString() != spec.SerializeAsString() || request.dry_run()) {
      return fail(ErrorCode::kConflict,
                  text("a run named ", spec.name(), " exists; choose another name or delete it"));
    }
    *answer.add_runs() = run_info(rooms, same, true);
    answer.set_existed(true);
    return reply;
  }
  // A second run of this name would hide from its user that nodes still have
  // the first one's checkpoints.
  if (const auto none = find_run(rooms, spec.name()); none.error().code == ErrorCode::kConflict)
    return none.error();
  if (rooms.runs.all().size() >= rooms.config.runs)
    return fail(ErrorCode::kExhausted, "too many runs; delete some first");

  Run run;
  *run.record.change().mutable_spec() = spec;
  *run.record.change().mutable_model() = model;
  run.record.change().set_wanted(stored::WANTED_ACTIVE);
  run.record.change().set_experts(partitions + (trains_router(spec) ? 1 : 0));
  run.record.change().set_steps_target(spec.train().steps());
  run.record.change().set_created_unix_ms(rooms.now.unix_ms);
  run.experts.resize(run.record->experts());
  for (std::uint32_t index = 0; index < run.record->experts(); ++index)
    run.experts[index].record.change().set_index(index);
  if (request.dry_run()) {
    run.record.change().set_state("waiting");
    *answer.add_runs() = run_info(rooms, run, true);
    return reply;
  }
  RunId id;
  do {
    id = RunId("r-" + rooms.random_hex(5));
  } while (rooms.runs.all().contains(id));
  run.record.change().set_id(id.str());
  for (Expert& expert : run.experts) expert.record.change().set_run(id.str());
  const Run& created = rooms.runs.insert(std::move(run));
  rooms.events.tell_run(EventKind::kRunCreated,
                        text(partitions, " experts", trains_router(spec) ? " and a router" : "",
                             " of ", spec.train().steps(), " steps on dataset ", spec.dataset()),
                        created);
  rooms.must_reschedule = true;
  rooms.leases.reschedule();  // so that the answer tells who trains
  *answer.add_runs() = run_info(rooms, created, true);
  return reply;
}

}  // namespace skerry::coordinator
