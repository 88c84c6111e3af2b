// SPDX-License-Identifier: Apache-2.0
// What follows when an object comes, fails or is lost.
#include "coordinator/admin/views.h"
#include "coordinator/core/machine.h"

namespace skerry::coordinator {

void Machine::object_stored(const ObjectStored& event) {
  if (objects.store(event)) tell_of_object(*this, EventKind::kObjectMended, event.manifest);
  for (auto& [id, run] : runs.all()) {
    for (Expert& expert : run.experts) {
      if (expert.commit->pending && expert.commit->pending->manifest == event.manifest)
        try_commit(expert);
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
      if (expert.commit->pending && objects.has(expert.commit->pending->manifest))
        try_commit(expert);
    }
  }
}

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
      [&](const DatasetName&, const pb::DatasetFile& file) { ask(file.object(), Purpose::kFile); });
  adoptions.visit_sought(ask);
}

}  // namespace skerry::coordinator
