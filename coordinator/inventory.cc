// What becomes of objects: those that come, fail or are found damaged, and what
// durable state names.
#include "base/planted.h"
#include "base/text.h"
#include "coordinator/machine.h"

namespace skerry::coordinator {
namespace {

constexpr char kDamaged[] =
    " is damaged on the coordinator's disk and is not served: a node that holds it gives it back, else ";

std::string words_of(const stored::Checkpoint& checkpoint, bool is_damaged) {
  const std::string what = text("the checkpoint of step ", checkpoint.step());
  if (!is_damaged) return what + " is whole again";
  return text(what, kDamaged, "restore a backup (`skerry-coordinator restore`)");
}

std::string words_of(const std::string& dataset, const pb::DatasetFile& file, bool is_damaged) {
  const std::string what = text("the file ", file.object().name(), " of dataset ", dataset);
  if (!is_damaged) return what + " is whole again";
  return text(what, kDamaged, "`skerry dataset add ", dataset,
              "` of the same images mends it, or restore a backup");
}

}  // namespace

void Machine::object_stored(const ObjectStored& event) {
  if (objects.store(event)) tell_of_object("object_mended", event.manifest);
  for (auto& [id, run] : runs.all()) {
    for (Expert& expert : run.experts) {
      if (expert.commit->pending && expert.commit->pending->manifest == event.manifest) try_commit(expert);
    }
  }
  datasets.stored(event.manifest);
  // A commit that was cut short may be sent again: its object waits a while.
  if (!commits.is_wanted(event.manifest)) objects.leave_unclaimed(event.manifest);
}

void Machine::object_failed(const ObjectFailed& event) {
  datasets.failed(event.manifest);
  commits.object_failed(event);
}

void Machine::try_commit(Expert& expert) {
  commits.try_again(expert);
  leases.end_finished(expert);
}

// Commits that are whole here and wait for others to say the same.
void Machine::decide_waiting() {
  for (auto& [id, run] : runs.all()) {
    if (copies_wanted(run) == 0) continue;
    for (Expert& expert : run.experts) {
      if (expert.commit->pending && objects.has(expert.commit->pending->manifest)) try_commit(expert);
    }
  }
}

// What this disk has lost comes back from nodes that hold it, as far as known.
void Machine::repair(const Hash& manifest, const std::vector<NodeId>& from) {
  if (from.empty() || !adoptions.is_sought(manifest)) return;
  const std::string raw = manifest.raw();
  const auto ask = [&](const pb::ObjectRef& object, Purpose purpose) {
    if (object.manifest() == raw) copies.repair(object, purpose, from);
  };
  runs.visit_checkpoints([&](const Run&, const Expert&, const stored::Checkpoint& checkpoint) {
    ask(object_ref(checkpoint), Purpose::kCheckpoint);
  });
  datasets.visit_files(
      [&](const std::string&, const pb::DatasetFile& file) { ask(file.object(), Purpose::kFile); });
  adoptions.visit_sought(ask);
}

std::vector<Hash> Machine::lost_objects() const {
  std::vector<Hash> unasked;
  for (const Hash& manifest : objects.damaged()) {
    if (!copies.is_repairing(manifest)) unasked.push_back(manifest);
  }
  adoptions.visit_sought([&](const pb::ObjectRef& object, Purpose) {
    const Hash manifest = *Hash::from_raw(object.manifest());
    if (!objects.has(manifest) && !copies.is_repairing(manifest)) unasked.push_back(manifest);
  });
  return unasked;
}

// Told once until it is mended, to all whose work it keeps from going on.
void Machine::object_damaged(const ObjectDamaged& event) {
  if (objects.damage(event.manifest)) tell_of_object("object_damaged", event.manifest);
}

void Machine::tell_of_object(const std::string& kind, const Hash& manifest) {
  const bool is_damaged = objects.is_damaged(manifest);
  const std::string raw = manifest.raw();
  runs.visit_checkpoints([&](const Run&, const Expert& expert, const stored::Checkpoint& checkpoint) {
    if (checkpoint.manifest() == raw)
      events.tell(kind, words_of(checkpoint, is_damaged), "", &expert, checkpoint.step());
  });
  datasets.visit_files([&](const std::string& name, const pb::DatasetFile& file) {
    if (file.object().manifest() != raw) return;
    const std::string words = words_of(name, file, is_damaged);
    bool is_used = false;
    for (const auto& [id, run] : runs.all()) {
      if (!uses(run.record->spec(), name)) continue;
      is_used = true;
      if (file.role() == "shard") {
        const Expert& expert = run.experts[static_cast<std::size_t>(file.partition())];
        events.tell(kind, words, "", &expert, expert.step());
      } else {
        events.tell_run(kind, words, run);
      }
    }
    if (!is_used) events.tell(kind, words);
  });
}

// What is wrong with it and what repairs it; empty: nothing, or nothing names it.
std::string Machine::trouble_of(const Hash& manifest) const {
  std::string words;
  if (!objects.is_damaged(manifest)) return words;
  const std::string raw = manifest.raw();
  runs.visit_checkpoints([&](const Run&, const Expert&, const stored::Checkpoint& checkpoint) {
    if (words.empty() && checkpoint.manifest() == raw) words = words_of(checkpoint, true);
  });
  datasets.visit_files([&](const std::string& name, const pb::DatasetFile& file) {
    if (words.empty() && file.object().manifest() == raw) words = words_of(name, file, true);
  });
  return words;
}

// What keeps this run from going on or from being fetched, as `run why` says it.
std::vector<std::string> Machine::damages(const Run& run) const {
  std::vector<std::string> found;
  const auto is_damaged = [&](const std::string& raw) { return objects.is_damaged(*Hash::from_raw(raw)); };
  for (const Expert& expert : run.experts) {
    for (const stored::Checkpoint& checkpoint : expert.record->checkpoints()) {
      if (is_damaged(checkpoint.manifest()))
        found.push_back(text(run.job_name(expert.record->index()), ": ", words_of(checkpoint, true)));
    }
  }
  for (const std::string& dataset : {run.record->spec().dataset(), run.record->spec().init()}) {
    if (dataset.empty()) continue;
    if (const Dataset& known = datasets.at(dataset); !known.record->ready()) {
      const auto lacking = std::ranges::count_if(known.record->content().files(), [&](const auto& file) {
        return !objects.has(file.object().manifest());
      });
      found.push_back(text(lacking, " files of dataset ", dataset,
                           " are not here since the run was adopted: nodes that hold one give it back, else "
                           "`skerry dataset add ",
                           dataset, "` of the same images brings them"));
    }
    for (const pb::DatasetFile& file : datasets.content(dataset).files()) {
      if (!is_damaged(file.object().manifest())) continue;
      const std::string whose = file.role() == "shard" ? text("expert ", file.partition(), ": ") : "";
      found.push_back(whose + words_of(dataset, file, true));
    }
  }
  return found;
}

std::vector<NamedObject> Machine::named_objects() const {
  std::vector<NamedObject> all;
  runs.visit_checkpoints([&](const Run& run, const Expert& expert, const stored::Checkpoint& checkpoint) {
    all.push_back({*Hash::from_raw(checkpoint.manifest()), Purpose::kCheckpoint, true,
                   text("run ", run.record->spec().name(), ", ", run.job_name(expert.record->index()),
                        ", step ", checkpoint.step())});
  });
  datasets.visit_files([&](const std::string& name, const pb::DatasetFile& file) {
    all.push_back({*Hash::from_raw(file.object().manifest()), Purpose::kFile,
                   datasets.at(name).record->ready(),
                   text("dataset ", name, ", file ", file.object().name())});
  });
  return all;
}

bool Machine::may_read(const Node& node, const Hash& manifest) const {
  if (!node.is_node()) return true;
  if (node.replicas->held.contains(manifest)) return true;
  const std::string raw = manifest.raw();
  bool is_of_router = false;
  datasets.visit_files([&](const std::string&, const pb::DatasetFile& file) {
    const bool of_router = file.role() == "router" || file.role() == "partition";
    is_of_router |= of_router && file.object().manifest() == raw;
  });
  if (is_of_router) return true;
  for (const ExpertId& id : *node.leases) {
    const Run& run = runs.at(id.run.str());
    if (run.experts[id.index].head() == raw) return true;
    const auto files = datasets.files_of(run, id.index);
    if (std::ranges::any_of(files, [&](const auto* file) { return file->object().manifest() == raw; }))
      return true;
  }
  return false;
}

}  // namespace skerry::coordinator
