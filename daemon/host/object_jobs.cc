// SPDX-License-Identifier: Apache-2.0
#include "daemon/host/object_jobs.h"

#include <utility>

#include "base/text.h"
#include "storage/safetensors.h"

namespace skerry::daemon {

Result<pb::ObjectRef> store_snapshot(storage::ObjectStore& objects, const StoreSnapshot& order,
                                     const Snapshot& snapshot) {
  ASSIGN_OR_RETURN(const storage::Safetensors tensors, snapshot.tensors());
  storage::Manifest facts;
  facts.kind = storage::ManifestKind::kCheckpoint;
  facts.run = RunId(order.run);
  facts.expert = order.expert;
  facts.from_step = order.from_step;
  facts.step = order.step;
  facts.epoch = Epoch(order.epoch);
  facts.attempt = order.attempt;
  facts.fingerprint = order.fingerprint;
  if (!order.parent.empty()) {
    ASSIGN_OR_RETURN(const Hash parent, Hash::from_raw(order.parent));
    facts.parent = parent;
  }
  ASSIGN_OR_RETURN(const storage::NamedManifest stored,
                   objects.store_checkpoint(tensors, std::move(facts)));
  pb::ObjectRef ref;
  ref.set_manifest(stored.name.raw());
  ref.set_manifest_bytes(stored.encoded.size());
  ref.set_bytes(stored.manifest.bytes());
  return ref;
}

std::optional<CheckpointFacts> checkpoint_facts(const storage::ObjectInfo& object) {
  if (object.kind != storage::ManifestKind::kCheckpoint) return std::nullopt;
  return CheckpointFacts{{object.facts.run, object.facts.expert}, object.facts.step};
}

Result<ResumeFile> open_resume(const storage::ObjectStore& objects, const Hash& checkpoint) {
  ASSIGN_OR_RETURN(const storage::ObjectInfo info, objects.info(checkpoint));
  if (info.kind != storage::ManifestKind::kCheckpoint) {
    return fail(ErrorCode::kInvalid,
                text("object ", checkpoint.short_hex(), " is a file, not a checkpoint"));
  }
  TRY(objects.check(checkpoint));
  ResumeFile resume;
  ASSIGN_OR_RETURN(resume.file, objects.open_file(checkpoint));
  ASSIGN_OR_RETURN(resume.bytes, resume.file->size());
  return resume;
}

Result<bool> is_whole(storage::ObjectStore& objects, const Hash& object, bool verify) {
  if (!objects.has(object)) return false;
  return verify ? objects.verify(object) : Result<bool>(true);
}

}  // namespace skerry::daemon
