// SPDX-License-Identifier: Apache-2.0
// What people read of runs.
#include <limits>

#include "base/text.h"
#include "coordinator/admin/admin.h"
#include "coordinator/admin/views.h"
#include "protocol/limits.h"

namespace skerry::coordinator {
namespace {

const pb::SlotStatus* status_of(const Rooms& rooms, const Expert& expert) {
  if (!expert.held()) return nullptr;
  const Node* node = rooms.roster.find(expert.holder());
  if (node == nullptr) return nullptr;
  for (const pb::SlotStatus& status : node->session->status) {
    if (status.run() == expert.record->run() && status.expert() == expert.record->index() &&
        status.epoch() == expert.record->epoch()) {
      return &status;
    }
  }
  return nullptr;
}

pb::ExpertInfo expert_info(const Rooms& rooms, const Run& run, const Expert& expert) {
  pb::ExpertInfo info;
  info.set_index(expert.record->index());
  info.set_step(expert.step());
  info.set_live_step(expert.step());
  info.set_steps_target(run.record->steps_target());
  info.set_epoch(expert.record->epoch());
  info.set_attempt(expert.record->attempt());
  info.set_router(run.is_router(expert.record->index()));
  info.set_removed(expert.is_removed());
  info.set_needs_bytes(job_of(run, info.router()).needs_bytes);
  info.set_eta_seconds(expert.held() && run.wants(expert) ? expert.lease->seconds_left : -1);
  info.set_dollars(rooms.spending.dollars(expert));
  info.set_cards(expert.held() ? expert.cards() : 0);
  info.set_phase(expert.is_removed()                             ? "removed"
                 : run.is_at_target(expert)                      ? "done"
                 : run.record->wanted() == stored::WANTED_FAILED ? "failed"
                                                                 : "waiting");
  if (!expert.head().empty()) {
    const stored::Checkpoint& head = expert.record->checkpoints(0);
    info.set_checkpoint(head.manifest());
    info.set_committed_unix_ms(head.committed_unix_ms());
    info.set_loss(head.metrics().loss());
    info.set_copies(rooms.copies.places_with_head(expert));
    info.set_unanchored_steps(rooms.copies.unanchored_steps(expert));
    info.set_gradient_norm(head.metrics().gradient_norm());
  }
  if (expert.held()) {
    info.set_node_id(expert.record->lease().node());
    info.set_node(rooms.roster.at(expert.holder()).record->name());
    info.set_phase("granted");
  }
  if (const pb::SlotStatus* status = status_of(rooms, expert)) {
    info.set_samples_per_second(status->samples_per_second());
    info.set_live_step(std::max<std::uint64_t>(status->step(), expert.step()));
    if (status->loss() > 0) info.set_loss(status->loss());
    if (status->phase() == pb::SLOT_FETCHING) info.set_phase("fetching");
    if (status->phase() == pb::SLOT_STARTING) info.set_phase("starting");
    if (status->phase() == pb::SLOT_TRAINING) info.set_phase("training");
    if (status->phase() == pb::SLOT_COMMITTING) info.set_phase("committing");
    if (status->phase() == pb::SLOT_FAILED) info.set_phase("failed");
  }
  return info;
}

pb::RunInfo orphan_info(const pb::RunRecord& orphan) {
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

}  // namespace

Result<const Run*> find_run(const Rooms& rooms, const std::string& name) {
  const Run* found = rooms.runs.find(name);
  if (found == nullptr) {
    ASSIGN_OR_RETURN(const pb::RunRecord* const orphan, rooms.adoptions.find_orphan(name));
    if (orphan != nullptr)
      return fail(ErrorCode::kConflict,
                  text("run ", name,
                       " is an orphan: nodes hold records of it, this coordinator has none; "
                       "`skerry run adopt ",
                       name, "` takes it back, `skerry ensemble fetch ", name,
                       " --from NODE` fetches it, `skerry run delete ", name, "` withdraws it"));
    return fail(ErrorCode::kNotFound, text("no run ", name, "; see \"skerry run list\""));
  }
  return found;
}

pb::RunInfo run_info(const Rooms& rooms, const Run& run, bool with_experts) {
  pb::RunInfo info;
  info.set_id(run.record->id());
  info.set_name(run.record->spec().name());
  info.set_state(run.record->state());
  info.set_reason(run.record->reason());
  *info.mutable_spec() = run.record->spec();
  *info.mutable_model() = run.record->model();
  info.set_created_unix_ms(run.record->created_unix_ms());
  double rate = 0;
  double remaining = 0;
  double holders = 0;
  double rated =
      // of the holders, those whose rate is known: one that fetches or starts
      // will have one like theirs
      0;
  double longest = 0;  // of the experts being trained: none can be split
  for (const Expert& expert : run.experts) {
    const pb::ExpertInfo each = expert_info(rooms, run, expert);
    if (with_experts) *info.add_experts() = each;
    if (expert.is_removed()) continue;
    info.set_steps_target(info.steps_target() + run.record->steps_target());
    info.set_steps_done(info.steps_done() + expert.step());
    const double left =
        static_cast<double>(run.record->steps_target() -
                            std::min(each.live_step(), run.record->steps_target())) *
        run.training_of(expert.record->index()).batch_size();
    rate += each.samples_per_second();
    holders += expert.held() ? 1 : 0;
    rated += each.samples_per_second() > 0 ? 1 : 0;
    remaining += left;
    if (each.samples_per_second() > 0)
      longest = std::max(longest, left / each.samples_per_second());
  }
  info.set_dollars(rooms.spending.dollars(run));
  info.set_dollars_per_hour(rooms.spending.rate(run));
  info.set_lost_steps(rooms.spending.lost_steps(run));
  std::uint64_t accepted = 0;  // by experts that were removed, too
  for (const Expert& expert : run.experts) accepted += expert.step();
  if (const double trained = static_cast<double>(accepted + info.lost_steps()); trained > 0)
    info.set_goodput(static_cast<double>(accepted) / trained);
  // Rates are what nodes say: two of the largest, or the smallest of all, must
  // not leave the numbers that a reader accepts.
  constexpr double kLargest = std::numeric_limits<double>::max();
  info.set_samples_per_second(std::min(rate, kLargest));
  const double expected = rated > 0 ? rate * std::max(1.0, holders / rated) : 0;
  info.set_eta_seconds(run.record->wanted() == stored::WANTED_DONE ? 0
                       : run.active() && expected > 0
                           ? std::min(std::max(remaining / expected, longest), kLargest)
                           : -1);
  return info;
}

AdminResult run_list(const Rooms& rooms, const pb::ListRequest& request) {
  pb::AdminReply reply;
  auto& list = *reply.mutable_runs();
  // An orphan whose name is taken stands under its id.
  std::map<std::string, RunId> names = rooms.runs.ids();
  for (const auto& [id, orphan] : rooms.adoptions.orphans()) {
    if (!names.emplace(orphan.name(), id).second) names.emplace(id.str(), id);
  }
  list.set_next(
      page(names, request, protocol::kPageItems, rooms.config.reply_bytes, [&](const RunId& id) {
        const auto run = rooms.runs.all().find(id);
        *list.add_runs() = run == rooms.runs.all().end()
                               ? orphan_info(rooms.adoptions.orphans().at(id))
                               : run_info(rooms, run->second, false);
        return list.runs(list.runs_size() - 1).ByteSizeLong();
      }));
  return reply;
}

AdminResult run_show(const Rooms& rooms, const pb::Named& request) {
  ASSIGN_OR_RETURN(const Run* const run, find_run(rooms, request.name()));
  pb::AdminReply reply;
  *reply.mutable_runs()->add_runs() = run_info(rooms, *run, true);
  return reply;
}

AdminResult run_history(const Rooms& rooms, const pb::RunHistory& request) {
  ASSIGN_OR_RETURN(const Run* const run, find_run(rooms, request.name()));
  const std::uint32_t experts = run->record->experts();
  if (request.expert() >= experts) {
    return fail(ErrorCode::kNotFound, text("run ", request.name(), " has ", experts,
                                           " experts, counted from 0, and no ", request.expert()));
  }
  pb::AdminReply reply;
  *reply.mutable_history() =
      rooms.history.list({run->id(), request.expert()}, request.after(), request.limit());
  return reply;
}

AdminResult run_why(const Rooms& rooms, const pb::Named& request) {
  ASSIGN_OR_RETURN(const Run* const run, find_run(rooms, request.name()));
  pb::AdminReply reply;
  auto& why = *reply.mutable_why();
  why.add_reasons(text("run ", run->record->spec().name(), " is ", run->record->state(),
                       run->record->reason().empty() ? "" : ": ", run->record->reason()));
  const pb::RunSpec& spec = run->record->spec();
  const double spent = rooms.spending.dollars(*run);
  if (spent > 0 || spec.budget_dollars() > 0) {
    why.add_reasons(text(
        "it has spent ", human_dollars(spent),
        spec.budget_dollars() > 0 ? text(" of its ", human_dollars(spec.budget_dollars())) : "",
        " and spends ", human_dollars(rooms.spending.rate(*run)), " an hour"));
  }
  const Schedule planned = rooms.leases.plan();
  for (const Why& each : planned.why) {
    if (each.expert.run != run->id()) continue;
    const Expert& expert = run->experts[each.expert.index];
    why.add_reasons(
        text(run->job_name(each.expert.index), ": ", each.reason,
             expert.lease->lapsed ? " (its last holder may still come back to it)" : ""));
  }
  for (const Expert& expert : run->experts) {
    for (std::string& reason : rooms.copies.why(*run, expert)) why.add_reasons(std::move(reason));
  }
  for (std::string& damage : damages(rooms, *run)) why.add_reasons(std::move(damage));
  why.add_reasons(
      text(planned.spares, planned.spares == 1 ? " slot is spare" : " slots are spare"));
  return reply;
}

AdminResult shard_list(const Rooms& rooms, const pb::Named& request) {
  ASSIGN_OR_RETURN(const Run* const run, find_run(rooms, request.name()));
  pb::AdminReply reply;
  auto& list = *reply.mutable_shards();
  for (const pb::DatasetFile& file :
       rooms.datasets.content(DatasetName(run->record->spec().dataset())).files()) {
    if (file.role() != "shard") continue;
    pb::ShardInfo& shard = *list.add_shards();
    shard.set_partition(static_cast<std::uint32_t>(file.partition()));
    *shard.mutable_object() = file.object();
    shard.set_samples(file.samples());
    const Expert& expert = run->experts[static_cast<std::size_t>(file.partition())];
    if (expert.held()) shard.set_node(rooms.roster.at(expert.holder()).record->name());
  }
  return reply;
}

AdminResult ensemble(const Rooms& rooms, const pb::Named& request) {
  ASSIGN_OR_RETURN(const Run* const run, find_run(rooms, request.name()));
  pb::AdminReply reply;
  auto& answer = *reply.mutable_ensemble();
  answer = about(rooms, *run);
  *answer.mutable_run() = run_info(rooms, *run, true);
  *answer.mutable_dataset() =
      rooms.datasets.info(rooms.datasets.at(DatasetName(run->record->spec().dataset())), false);
  const auto is_removed = [&](const pb::DatasetFile& file) {
    return file.role() == "partition" &&
           run->experts[static_cast<std::size_t>(file.partition())].is_removed();
  };
  auto& router = *answer.mutable_router();
  router.erase(std::remove_if(router.begin(), router.end(), is_removed), router.end());
  for (const Expert& expert : run->experts) {
    if (expert.is_removed()) continue;
    const bool is_router = run->is_router(expert.record->index());
    auto& each = is_router ? *answer.mutable_learned_router() : *answer.add_experts();
    each.set_index(expert.record->index());
    if (!expert.head().empty())
      *each.mutable_checkpoint() = object_ref(expert.record->checkpoints(0));
    each.set_step(expert.step());
    each.set_steps_target(run->record->steps_target());
    each.set_partition_samples(
        is_router ? answer.dataset().samples()
                  : answer.dataset().partition_samples(static_cast<int>(expert.record->index())));
  }
  return reply;
}

AdminResult status(const Rooms& rooms) {
  pb::AdminReply reply;
  auto& answer = *reply.mutable_status();
  answer.set_software(text("skerry-coordinator ", SKERRY_VERSION, ", protocol ",
                           protocol::kVersionMajor, ".", protocol::kVersionMinor));
  answer.set_version(SKERRY_VERSION);
  answer.set_started_unix_ms(rooms.started_unix_ms);
  answer.set_nodes(static_cast<std::uint32_t>(std::ranges::count_if(
      rooms.roster.all(), [&](const auto& node) { return rooms.roster.is_live(node.second); })));
  answer.set_runs(static_cast<std::uint32_t>(rooms.runs.all().size()));
  answer.set_disk_free_bytes(rooms.objects.disk_free());
  answer.set_recovering(rooms.roster.is_recovering());
  answer.set_now_unix_ms(rooms.now.unix_ms);
  answer.set_idle_dollars(rooms.spending.idle_dollars());
  return reply;
}

}  // namespace skerry::coordinator
