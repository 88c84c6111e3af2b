#include "daemon/object_jobs.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "base/system_error.h"
#include "storage/safetensors.h"

namespace skerry::daemon {

Result<pb::ObjectRef> store_snapshot(storage::ObjectStore& objects, const StoreSnapshot& order,
                                     const Snapshot& snapshot) {
  ASSIGN_OR_RETURN(const storage::Safetensors tensors,
                   storage::Safetensors::map(snapshot.memory.get(), snapshot.bytes));
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
  ASSIGN_OR_RETURN(const storage::NamedManifest stored, objects.store_checkpoint(tensors, std::move(facts)));
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
  ASSIGN_OR_RETURN(const std::string path, objects.path_of(checkpoint));
  ASSIGN_OR_RETURN(const storage::ObjectInfo info, objects.info(checkpoint));
  if (info.kind != storage::ManifestKind::kCheckpoint) {
    return fail(ErrorCode::kInvalid, text("object ", checkpoint.short_hex(), " is a file, not a checkpoint"));
  }
  TRY(objects.check(checkpoint));
  ResumeFile resume{UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC))};
  if (!resume.file) return system_error("open", path, errno);
  struct stat status {};
  if (::fstat(resume.file.get(), &status) != 0) return system_error("inspect", path, errno);
  resume.bytes = static_cast<std::uint64_t>(status.st_size);
  return resume;
}

Result<bool> is_whole(storage::ObjectStore& objects, const Hash& object, bool verify) {
  if (!objects.has(object)) return false;
  return verify ? objects.verify(object) : Result<bool>(true);
}

}  // namespace skerry::daemon
