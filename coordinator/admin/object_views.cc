// SPDX-License-Identifier: Apache-2.0
// What durable state names, and what is wrong with it.
#include "base/text.h"
#include "coordinator/admin/views.h"

namespace skerry::coordinator {
namespace {

constexpr char kDamaged[] =
    " is damaged on the coordinator's disk and is not served: a node that holds it gives it back, "
    "else ";

std::string words_of(const stored::Checkpoint& checkpoint, bool is_damaged) {
  const std::string what = text("the checkpoint of step ", checkpoint.step());
  if (!is_damaged) return what + " is whole again";
  return text(what, kDamaged, "restore a backup (`skerry-coordinator restore`)");
}

std::string words_of(const DatasetName& dataset, const pb::DatasetFile& file, bool is_damaged) {
  const std::string what = text("the file ", file.object().name(), " of dataset ", dataset);
  if (!is_damaged) return what + " is whole again";
  return text(what, kDamaged, "`skerry dataset add ", dataset,
              "` of the same images repairs it, or restore a backup");
}

}  // namespace

std::vector<Hash> lost_objects(const Rooms& rooms) {
  std::vector<Hash> unasked;
  for (const Hash& manifest : rooms.objects.damaged()) {
    if (!rooms.copies.is_repairing(manifest)) unasked.push_back(manifest);
  }
  rooms.adoptions.visit_sought([&](const pb::ObjectRef& object, Purpose) {
    const Hash manifest = *Hash::from_raw(object.manifest());
    if (!rooms.objects.has(manifest) && !rooms.copies.is_repairing(manifest))
      unasked.push_back(manifest);
  });
  return unasked;
}

std::string trouble_of(const Rooms& rooms, const Hash& manifest) {
  std::string words;
  if (!rooms.objects.is_damaged(manifest)) return words;
  const std::string raw = manifest.raw();
  rooms.runs.visit_checkpoints(
      [&](const Run&, const Expert&, const stored::Checkpoint& checkpoint) {
        if (words.empty() && checkpoint.manifest() == raw) words = words_of(checkpoint, true);
      });
  rooms.datasets.visit_files([&](const DatasetName& name, const pb::DatasetFile& file) {
    if (words.empty() && file.object().manifest() == raw) words = words_of(name, file, true);
  });
  return words;
}

std::vector<std::string> damages(const Rooms& rooms, const Run& run) {
  std::vector<std::string> found;
  const auto is_damaged = [&](const std::string& raw) {
    return rooms.objects.is_damaged(*Hash::from_raw(raw));
  };
  for (const Expert& expert : run.experts) {
    for (const stored::Checkpoint& checkpoint : expert.record->checkpoints()) {
      if (is_damaged(checkpoint.manifest()))
        found.push_back(
            text(run.job_name(expert.record->index()), ": ", words_of(checkpoint, true)));
    }
  }
  const pb::RunSpec& spec = run.record->spec();
  for (const DatasetName& dataset : {DatasetName(spec.dataset()), DatasetName(spec.init())}) {
    if (dataset.empty()) continue;
    if (const Dataset& known = rooms.datasets.at(dataset); !known.record->ready()) {
      const auto lacking = std::ranges::count_if(
          known.record->content().files(),
          [&](const auto& file) { return !rooms.objects.has(file.object().manifest()); });
      found.push_back(
          text(lacking, " files of dataset ", dataset,
               " are not here since the run was adopted: nodes that hold one give it back, else "
               "`skerry dataset add ",
               dataset, "` of the same images brings them"));
    }
    for (const pb::DatasetFile& file : rooms.datasets.content(dataset).files()) {
      if (!is_damaged(file.object().manifest())) continue;
      const std::string whose =
          file.role() == "shard" ? text("expert ", file.partition(), ": ") : "";
      found.push_back(whose + words_of(dataset, file, true));
    }
  }
  return found;
}

std::vector<NamedObject> named_objects(const Rooms& rooms) {
  std::vector<NamedObject> all;
  rooms.runs.visit_checkpoints(
      [&](const Run& run, const Expert& expert, const stored::Checkpoint& checkpoint) {
        all.push_back({*Hash::from_raw(checkpoint.manifest()), Purpose::kCheckpoint, true,
                       text("run ", run.record->spec().name(), ", ",
                            run.job_name(expert.record->index()), ", step ", checkpoint.step())});
      });
  rooms.datasets.visit_files([&](const DatasetName& name, const pb::DatasetFile& file) {
    all.push_back({*Hash::from_raw(file.object().manifest()), Purpose::kFile,
                   rooms.datasets.at(name).record->ready(),
                   text("dataset ", name, ", file ", file.object().name())});
  });
  return all;
}

bool may_read(const Rooms& rooms, const Node& node, const Hash& manifest) {
  if (!node.is_node()) return true;
  if (node.replicas->held.contains(manifest)) return true;
  const std::string raw = manifest.raw();
  bool is_of_router = false;
  rooms.datasets.visit_files([&](const DatasetName&, const pb::DatasetFile& file) {
    const bool of_router = file.role() == "router" || file.role() == "partition";
    is_of_router |= of_router && file.object().manifest() == raw;
  });
  if (is_of_router) return true;
  const auto needs = [&](const ExpertId& id) {
    return std::ranges::any_of(rooms.datasets.files_of(rooms.runs.at(id.run), id.index),
                               [&](const auto* file) { return file->object().manifest() == raw; });
  };
  for (const ExpertId& id : *node.leases) {
    if (rooms.runs.find_expert(id.run, id.index)->head() == raw || needs(id)) return true;
  }
  return std::ranges::any_of(node.replicas->experts, [&](const ExpertId& id) {
    const Expert* const expert = rooms.runs.find_expert(id.run, id.index);
    return expert != nullptr && expert->copies->stands_by == node.id() && needs(id);
  });
}

void tell_of_object(Rooms& rooms, EventKind kind, const Hash& manifest) {
  const bool is_damaged = rooms.objects.is_damaged(manifest);
  const std::string raw = manifest.raw();
  rooms.runs.visit_checkpoints(
      [&](const Run&, const Expert& expert, const stored::Checkpoint& checkpoint) {
        if (checkpoint.manifest() == raw)
          rooms.events.tell(kind, words_of(checkpoint, is_damaged), "", &expert, checkpoint.step());
      });
  rooms.datasets.visit_files([&](const DatasetName& name, const pb::DatasetFile& file) {
    if (file.object().manifest() != raw) return;
    const std::string words = words_of(name, file, is_damaged);
    bool is_used = false;
    for (const auto& [id, run] : rooms.runs.all()) {
      if (!uses(run.record->spec(), name)) continue;
      is_used = true;
      if (file.role() == "shard") {
        const Expert& expert = run.experts[static_cast<std::size_t>(file.partition())];
        rooms.events.tell(kind, words, "", &expert, expert.step());
      } else {
        rooms.events.tell_run(kind, words, run);
      }
    }
    if (!is_used) rooms.events.tell(kind, words);
  });
}

}  // namespace skerry::coordinator
