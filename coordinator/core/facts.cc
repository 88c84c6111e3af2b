// SPDX-License-Identifier: Apache-2.0
// What the coordinator tells everyone in records.
#include <algorithm>

#include "coordinator/admin/views.h"

namespace skerry::coordinator {

pb::EnsembleReply about(const Rooms& rooms, const Run& run) {
  pb::EnsembleReply about;
  pb::RunInfo& info = *about.mutable_run();
  info.set_id(run.record->id());
  info.set_name(run.record->spec().name());
  *info.mutable_spec() = run.record->spec();
  *info.mutable_model() = run.record->model();
  info.set_created_unix_ms(run.record->created_unix_ms());
  info.set_steps_target(run.record->steps_target() * run.experts.size());
  const Dataset& dataset = rooms.datasets.at(DatasetName(run.record->spec().dataset()));
  *about.mutable_dataset() = rooms.datasets.info(dataset, false);
  about.mutable_dataset()->clear_state();
  about.mutable_dataset()->clear_received_bytes();
  for (const pb::DatasetFile& file : dataset.record->content().files()) {
    if (file.role() == "router" || file.role() == "partition") *about.add_router() = file;
  }
  return about;
}

std::vector<RunFacts> run_facts(const Rooms& rooms) {
  std::vector<RunFacts> all;
  for (const auto& [id, run] : rooms.runs.all()) {
    RunFacts& facts = all.emplace_back();
    facts.about = about(rooms, run);
    *facts.about.mutable_content() =
        rooms.datasets.content(DatasetName(run.record->spec().dataset()));
    if (!run.record->spec().init().empty())
      *facts.about.mutable_weights() =
          rooms.datasets.content(DatasetName(run.record->spec().init()));
    const pb::DatasetInfo& dataset = facts.about.dataset();
    std::vector<const pb::ObjectRef*> statistics(run.experts.size());
    for (const pb::DatasetFile& file : facts.about.router()) {
      if (file.role() == "partition")
        statistics.at(static_cast<std::size_t>(file.partition())) = &file.object();
    }
    for (const Expert& expert : run.experts) {
      if (expert.is_removed()) facts.removed.push_back(expert.record->index());
      if (expert.head().empty()) continue;
      const stored::Checkpoint& head = expert.record->checkpoints(0);
      pb::ExpertRecord& record = facts.experts.emplace_back();
      record.set_run(id.str());
      record.set_expert(expert.record->index());
      record.set_round(head.round());
      record.set_step(head.step());
      record.set_epoch(head.epoch());
      *record.mutable_checkpoint() = object_ref(head);
      record.set_loss(head.metrics().loss());
      if (run.is_router(expert.record->index())) continue;  // it has no partition
      const auto samples = dataset.partition_samples(static_cast<int>(expert.record->index()));
      if (dataset.samples() > 0) {
        record.set_share(
            std::min(1.0, static_cast<double>(samples) / static_cast<double>(dataset.samples())));
      }
      if (const pb::ObjectRef* object = statistics[expert.record->index()])
        *record.mutable_statistics() = *object;
    }
  }
  return all;
}

std::vector<NodeId> revoked(const Rooms& rooms) {
  std::vector<NodeId> all;
  for (const auto& [id, node] : rooms.roster.all()) {
    if (node.record->revoked()) all.emplace_back(id);
  }
  for (const auto& [id, key] : rooms.roster.revoked_keys()) all.emplace_back(id);
  return all;
}

}  // namespace skerry::coordinator
