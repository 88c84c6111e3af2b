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

bool Machine::is_wanted(const Hash& manifest) const {
  return objects.is_named(manifest) || (runs.is_pending(manifest) && !planted("pending_collected")) ||
         sought_object(manifest).has_value();
}

// Nobody waits for it any more, as far as the caller knows: others may.
void Machine::cancel_fetch(const Hash& manifest) {
  if (!datasets.is_fetching(manifest) && !mending.contains(manifest) && !runs.is_pending(manifest))
    effects.cancel_fetches.push_back(manifest);
}

// Nodes are asked for it: it was lost, or is to come with a run that was taken back.
bool Machine::is_sought(const Hash& manifest) const {
  return objects.is_damaged(manifest) || (!objects.has(manifest) && sought_object(manifest));
}

void Machine::object_stored(const ObjectStored& event) {
  if (objects.store(event)) tell_of_object("object_mended", event.manifest);
  for (auto& [id, run] : runs.all()) {
    for (Expert& expert : run.experts) {
      if (expert.pending && expert.pending->manifest == event.manifest) commit_stored(expert);
    }
  }
  datasets.stored(event.manifest);
  // A commit that was cut short may be sent again: its object waits a while.
  if (!is_wanted(event.manifest)) objects.leave_unclaimed(event.manifest);
}

void Machine::object_failed(const ObjectFailed& event) {
  datasets.failed(event.manifest);
  for (auto& [id, run] : runs.all()) {
    for (Expert& expert : run.experts) {
      if (!expert.pending || expert.pending->manifest != event.manifest) continue;
      const PendingCommit pending = *expert.pending;
      set_pending(expert, std::nullopt);
      if (event.may_retry) continue;  // its sender asks again
      refuse(expert, roster.at(pending.node), event.reason);
      pb::ControlReply message;
      message.set_id(pending.request);
      *message.mutable_commit() = verdict(expert, pending.commit, pb::COMMIT_REFUSED, event.reason);
      reply(pending.asker, std::move(message));
    }
  }
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
  if (node.held.contains(manifest)) return true;
  const std::string raw = manifest.raw();
  bool is_of_router = false;
  datasets.visit_files([&](const std::string&, const pb::DatasetFile& file) {
    const bool of_router = file.role() == "router" || file.role() == "partition";
    is_of_router |= of_router && file.object().manifest() == raw;
  });
  if (is_of_router) return true;
  for (const ExpertId& id : node.leases) {
    const Run& run = runs.at(id.run.str());
    if (run.experts[id.index].head() == raw) return true;
    const auto files = datasets.files_of(run, id.index);
    if (std::ranges::any_of(files, [&](const auto* file) { return file->object().manifest() == raw; }))
      return true;
  }
  return false;
}

}  // namespace skerry::coordinator
