// What people ask about objects: which there are, and whether they are whole where the coordinator keeps them.
#include "base/text.h"
#include "coordinator/machine.h"
#include "protocol/limits.h"

namespace skerry::coordinator {
namespace {

constexpr std::size_t kVerifications = 16;                  // at once, or done and not yet asked for
constexpr Duration kVerdictKept = std::chrono::minutes(1);  // for an asker who has gone

}  // namespace

std::string Machine::object_state(const Hash& manifest) const {
  if (damaged.contains(manifest)) return "damaged";
  return stored_objects.contains(manifest) ? "whole" : "arriving";
}

// What durable state names, once each.
std::map<Hash, pb::ObjectInfo> Machine::named_objects(const Run* only) const {
  std::map<Hash, pb::ObjectInfo> found;
  const auto add = [&](const pb::ObjectRef& object) -> pb::ObjectInfo& {
    const Hash manifest = *Hash::from_raw(object.manifest());
    pb::ObjectInfo& info = found[manifest];
    *info.mutable_object() = object;
    info.set_expert(-1);
    info.set_state(object_state(manifest));
    return info;
  };
  for (const auto& [id, run] : runs.all()) {
    if (only != nullptr && &run != only) continue;
    for (const Expert& expert : run.experts) {
      for (const stored::Checkpoint& checkpoint : expert.record->checkpoints()) {
        pb::ObjectInfo& info = add(object_ref(checkpoint));
        info.set_kind("checkpoint");
        info.set_run(run.record->spec().name());
        info.set_expert(static_cast<std::int32_t>(expert.record->index()));
        info.set_step(checkpoint.step());
      }
    }
  }
  for (const auto& [name, dataset] : datasets) {
    if (only != nullptr && only->record->spec().dataset() != name) continue;
    for (const pb::DatasetFile& file : dataset.record->content().files()) {
      pb::ObjectInfo& info = add(file.object());
      info.set_kind(file.role());
      info.set_dataset(name);
      info.set_expert(file.partition());
    }
  }
  return found;
}

AdminResult Machine::object_list(const pb::ObjectList& request) {
  const Run* only = nullptr;
  if (!request.run().empty()) {
    ASSIGN_OR_RETURN(only, find_run(request.run()));
  }
  const std::size_t limit = request.limit() == 0
                                ? protocol::kPageItems
                                : std::min<std::size_t>(request.limit(), protocol::kPageItems);
  const std::map<Hash, pb::ObjectInfo> all = named_objects(only);
  pb::AdminReply reply;
  auto& list = *reply.mutable_objects();
  std::size_t bytes = 0;
  auto next = request.after().empty() ? all.begin() : all.upper_bound(*Hash::from_raw(request.after()));
  for (; next != all.end(); ++next) {
    if (static_cast<std::size_t>(list.objects_size()) >= limit || bytes >= config.reply_bytes) {
      list.set_next(list.objects(list.objects_size() - 1).object().manifest());
      break;
    }
    *list.add_objects() = next->second;
    bytes += next->second.ByteSizeLong();
  }
  return reply;
}

AdminResult Machine::object_verify(const pb::ObjectVerify& request) {
  const Hash manifest = *Hash::from_raw(request.manifest());
  if (!named.contains(manifest)) {
    verifications.erase(manifest);
    return fail(ErrorCode::kNotFound, text("object ", manifest.short_hex(),
                                           " is not named by any run or dataset, or not any longer"));
  }
  pb::AdminReply reply;
  auto& answer = *reply.mutable_verified();
  const auto said = verifications.find(manifest);
  if (said != verifications.end()) {
    Verification& verification = said->second;
    verification.asked = now.boot;
    answer.set_done(verification.done);
    answer.set_checked_bytes(verification.bytes);
    answer.set_chunks(verification.chunks);
    for (const Hash& chunk : verification.damaged) answer.add_damaged(chunk.raw());
    if (verification.done) {
      answer.set_trouble(verification.trouble);
      verifications.erase(said);
    }
  } else if (damaged.contains(manifest)) {
    answer.set_done(true);
    answer.set_trouble(trouble_of(manifest));
  } else if (!stored_objects.contains(manifest)) {
    return fail(ErrorCode::kConflict, text("object ", manifest.short_hex(), " is still on its way"));
  } else if (verifications.size() < kVerifications) {  // else it waits: asked again, it may be its turn
    verifications[manifest].asked = now.boot;
    effects.verifies.push_back(manifest);
  }
  return reply;
}

void Machine::object_checked(const ObjectChecked& event) {
  const auto found = verifications.find(event.manifest);
  if (found == verifications.end()) return;
  Verification& verification = found->second;
  verification.bytes = event.bytes;
  verification.chunks = event.chunks;
  verification.done = event.done;
  if (event.done) verification.trouble = trouble_of(event.manifest);
  verification.damaged = event.damaged;
  if (verification.damaged.size() > protocol::kDamagedChunks)
    verification.damaged.resize(protocol::kDamagedChunks);
}

void Machine::forget_verdicts() {
  std::erase_if(verifications, [&](const auto& each) {
    return each.second.done && each.second.asked + kVerdictKept < now.boot;
  });
}

}  // namespace skerry::coordinator
