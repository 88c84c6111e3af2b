// Which objects are there, which are named by durable state, and which may go (S8).
#include "base/check.h"
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

void Machine::name_object(const std::string& manifest) {
  const Hash hash = *Hash::from_raw(manifest);
  ++named[hash];
  unclaimed.erase(hash);
}

void Machine::unname_object(const std::string& manifest, Purpose purpose) {
  const Hash hash = *Hash::from_raw(manifest);
  const auto found = named.find(hash);
  SKERRY_CHECK(found != named.end(), "an object is named no more often than it was named");
  if (--found->second > 0) return;
  named.erase(found);
  damaged.erase(hash);
  if (is_being_read(hash)) {
    unclaimed[hash] = now.boot;  // goes once its reader has gone
    return;
  }
  stored_objects.erase(hash);
  drop_once_durable({hash, purpose});
}

// Its batch must be durable first: until then the durable state may still name the object.
void Machine::drop_once_durable(const Drop& drop) {
  if (planted("dropped_before_durable")) return effects.drops.push_back(drop);
  // A batch in between may have named it again.
  std::erase_if(leaving, [&](const auto& each) { return each.first.manifest == drop.manifest; });
  leaving.push_back({drop, kThisBatch});
}

// What became known or wanted again meanwhile stays: a dataset that was deleted and added again, a commit that is sent again.
void Machine::drop_leaving() {
  for (auto last = leaving.rbegin(); last != leaving.rend() && last->second == kThisBatch; ++last)
    last->second = batch;
  for (; !leaving.empty() && leaving.front().second <= persisted; leaving.pop_front()) {
    const Drop& drop = leaving.front().first;
    const bool is_back = stored_objects.contains(drop.manifest) || is_wanted(drop.manifest);
    if (!is_back || planted("drop_not_withdrawn")) effects.drops.push_back(drop);
  }
}

bool Machine::is_wanted(const Hash& manifest) const {
  return named.contains(manifest) || (runs.is_pending(manifest) && !planted("pending_collected")) ||
         sought_object(manifest).has_value();
}

// Nobody waits for it any more, as far as the caller knows: others may.
void Machine::cancel_fetch(const Hash& manifest) {
  const bool is_fetched = std::ranges::any_of(
      datasets, [&](const auto& dataset) { return dataset.second.fetching.contains(manifest); });
  if (!is_fetched && !mending.contains(manifest) && !runs.is_pending(manifest))
    effects.cancel_fetches.push_back(manifest);
}

// Nodes are asked for it: it was lost, or is to come with a run that was taken back.
bool Machine::is_sought(const Hash& manifest) const {
  return damaged.contains(manifest) || (!stored_objects.contains(manifest) && sought_object(manifest));
}

void Machine::object_stored(const ObjectStored& event) {
  stored_objects[event.manifest] = {event.manifest_bytes, event.bytes, event.checkpoint, event.facts};
  if (damaged.erase(event.manifest) > 0) tell_of_object("object_mended", event.manifest);
  for (auto& [id, run] : runs.all()) {
    for (Expert& expert : run.experts) {
      if (expert.pending && expert.pending->manifest == event.manifest) commit_stored(expert);
    }
  }
  for (auto& [name, dataset] : datasets) {
    dataset.fetching.erase(event.manifest);
    dataset.progress.erase(event.manifest);
    check_ready(dataset);
    pump(dataset);
  }
  // A commit that was cut short may be sent again: its object waits a while.
  if (!is_wanted(event.manifest)) unclaimed[event.manifest] = now.boot;
}

void Machine::object_failed(const ObjectFailed& event) {
  for (auto& [name, dataset] : datasets) {
    if (dataset.fetching.erase(event.manifest) > 0) dataset.progress.erase(event.manifest);
  }
  for (auto& [id, run] : runs.all()) {
    for (Expert& expert : run.experts) {
      if (!expert.pending || expert.pending->manifest != event.manifest) continue;
      const PendingCommit pending = *expert.pending;
      set_pending(expert, std::nullopt);
      if (event.may_retry) continue;  // its sender asks again
      refuse(expert, nodes.at(pending.node), event.reason);
      pb::ControlReply message;
      message.set_id(pending.request);
      *message.mutable_commit() = verdict(expert, pending.commit, pb::COMMIT_REFUSED, event.reason);
      reply(pending.asker, std::move(message));
    }
  }
}

// Told once until it is mended, to all whose work it keeps from going on.
void Machine::object_damaged(const ObjectDamaged& event) {
  if (!named.contains(event.manifest) || !damaged.insert(event.manifest).second) return;
  stored_objects.erase(event.manifest);
  tell_of_object("object_damaged", event.manifest);
}

void Machine::tell_of_object(const std::string& kind, const Hash& manifest) {
  const bool is_damaged = damaged.contains(manifest);
  const std::string raw = manifest.raw();
  for (const auto& [id, run] : runs.all()) {
    for (const Expert& expert : run.experts) {
      for (const stored::Checkpoint& checkpoint : expert.record->checkpoints()) {
        if (checkpoint.manifest() == raw)
          events.tell(kind, words_of(checkpoint, is_damaged), "", &expert, checkpoint.step());
      }
    }
  }
  for (const auto& [name, dataset] : datasets) {
    for (const pb::DatasetFile& file : dataset.record->content().files()) {
      if (file.object().manifest() != raw) continue;
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
    }
  }
}

// What is wrong with it and what mends it; empty: nothing, or nothing names it.
std::string Machine::trouble_of(const Hash& manifest) const {
  if (!damaged.contains(manifest)) return "";
  const std::string raw = manifest.raw();
  for (const auto& [id, run] : runs.all()) {
    for (const Expert& expert : run.experts) {
      for (const stored::Checkpoint& checkpoint : expert.record->checkpoints()) {
        if (checkpoint.manifest() == raw) return words_of(checkpoint, true);
      }
    }
  }
  for (const auto& [name, dataset] : datasets) {
    for (const pb::DatasetFile& file : dataset.record->content().files()) {
      if (file.object().manifest() == raw) return words_of(name, file, true);
    }
  }
  return "";
}

// What keeps this run from going on or from being fetched, as `run why` says it.
std::vector<std::string> Machine::damages(const Run& run) const {
  std::vector<std::string> found;
  const auto is_damaged = [&](const std::string& raw) { return damaged.contains(*Hash::from_raw(raw)); };
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
        return !stored_objects.contains(*Hash::from_raw(file.object().manifest()));
      });
      found.push_back(text(lacking, " files of dataset ", dataset,
                           " are not here since the run was adopted: nodes that hold one give it back, else "
                           "`skerry dataset add ",
                           dataset, "` of the same images brings them"));
    }
    for (const pb::DatasetFile& file : datasets.at(dataset).record->content().files()) {
      if (!is_damaged(file.object().manifest())) continue;
      const std::string whose = file.role() == "shard" ? text("expert ", file.partition(), ": ") : "";
      found.push_back(whose + words_of(dataset, file, true));
    }
  }
  return found;
}

void Machine::keep_for_reader(const NodeId& person, const ConnectionId& connection,
                              const pb::EnsembleReply& ensemble) {
  // Asking anew ends what an earlier connection held: as many as there are connections, never more.
  std::erase_if(reading, [&](const auto& reader) {
    return reader.second.person == person && !peers.contains(reader.first);
  });
  Reader& reader = reading[connection];
  reader = {person, {}, now.boot + config.unclaimed_objects};
  const auto keep = [&](const pb::EnsembleExpert& expert) {
    if (!expert.checkpoint().manifest().empty())
      reader.checkpoints.insert(*Hash::from_raw(expert.checkpoint().manifest()));
  };
  for (const pb::EnsembleExpert& expert : ensemble.experts()) keep(expert);
  keep(ensemble.learned_router());
}

void Machine::forget_readers() {
  for (auto& [connection, reader] : reading) {
    if (peers.contains(connection)) reader.until = now.boot + config.unclaimed_objects;
  }
  std::erase_if(reading, [&](const auto& reader) { return reader.second.until < now.boot; });
}

bool Machine::is_being_read(const Hash& manifest) const {
  return std::ranges::any_of(
      reading, [&](const auto& reader) { return reader.second.checkpoints.contains(manifest); });
}

void Machine::drop_unclaimed() {
  if (now.boot < recovery_until) return;
  forget_readers();
  std::erase_if(unclaimed, [&](const auto& object) {
    if (now.boot - object.second < config.unclaimed_objects) return false;
    if (is_being_read(object.first)) return false;
    if (is_wanted(object.first)) return true;
    const auto found = stored_objects.find(object.first);
    if (found == stored_objects.end()) return true;
    drop_once_durable({object.first, found->second.checkpoint ? Purpose::kCheckpoint : Purpose::kFile});
    stored_objects.erase(found);
    return true;
  });
}

// Told once, and once more when there is room.
void Machine::disk_is_full(std::uint64_t needed) {
  const bool told = disk_lacks > 0;
  disk_lacks = std::max(disk_lacks, needed);
  if (told) return;
  events.tell("disk_full", text("the coordinator's disk has ", human_bytes(*disk_free), " free, ",
                                human_bytes(needed), " are needed: commits wait for room"));
}

void Machine::disk_measured(std::uint64_t bytes) {
  disk_free = bytes;
  if (bytes < config.reserve_bytes) disk_is_full(config.reserve_bytes);
  if (disk_lacks == 0 || bytes < disk_lacks) return;
  disk_lacks = 0;
  events.tell("disk_room", text("the coordinator's disk has ", human_bytes(bytes), " free again"));
}

std::vector<NamedObject> Machine::objects() const {
  std::vector<NamedObject> all;
  for (const auto& [id, run] : runs.all()) {
    for (const Expert& expert : run.experts) {
      for (const stored::Checkpoint& checkpoint : expert.record->checkpoints()) {
        all.push_back({*Hash::from_raw(checkpoint.manifest()), Purpose::kCheckpoint, true,
                       text("run ", run.record->spec().name(), ", ", run.job_name(expert.record->index()),
                            ", step ", checkpoint.step())});
      }
    }
  }
  for (const auto& [name, dataset] : datasets) {
    for (const pb::DatasetFile& file : dataset.record->content().files()) {
      all.push_back({*Hash::from_raw(file.object().manifest()), Purpose::kFile, dataset.record->ready(),
                     text("dataset ", name, ", file ", file.object().name())});
    }
  }
  return all;
}

bool Machine::may_read(const Node& node, const Hash& manifest) const {
  if (!node.is_node()) return true;
  if (node.held.contains(manifest)) return true;
  const std::string raw = manifest.raw();
  for (const auto& [name, dataset] : datasets) {
    for (const pb::DatasetFile& file : dataset.record->content().files()) {
      const bool of_router = file.role() == "router" || file.role() == "partition";
      if (of_router && file.object().manifest() == raw) return true;
    }
  }
  for (const ExpertId& id : node.leases) {
    const Run& run = runs.at(id.run.str());
    if (run.experts[id.index].head() == raw) return true;
    const auto files = files_of(run, id.index);
    if (std::ranges::any_of(files, [&](const auto* file) { return file->object().manifest() == raw; }))
      return true;
  }
  return false;
}

}  // namespace skerry::coordinator
