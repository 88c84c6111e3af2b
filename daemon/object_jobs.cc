#include "daemon/object_jobs.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "storage/files.h"
#include "storage/layout.h"
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

Result<ResumeMemory> assemble_resume(const storage::ObjectStore& objects, const Hash& checkpoint) {
  ASSIGN_OR_RETURN(const storage::NamedManifest manifest, objects.manifest(checkpoint));
  if (manifest.manifest.kind != storage::ManifestKind::kCheckpoint) {
    return fail(ErrorCode::kInvalid, text("object ", checkpoint.short_hex(), " is a file, not a checkpoint"));
  }
  ASSIGN_OR_RETURN(const storage::Layout layout, storage::safetensors_layout(manifest.manifest));
  ResumeMemory resume;
  resume.memory = UniqueFd(::memfd_create("skerry-resume", MFD_CLOEXEC));
  if (!resume.memory) return system_error("make", "memory for a checkpoint", errno);
  if (::ftruncate(resume.memory.get(), static_cast<off_t>(layout.total_bytes)) != 0) {
    return system_error("make", "memory for a checkpoint", errno);
  }
  const auto source = [&](std::span<const Hash> chunks) { return objects.read_each(checkpoint, chunks); };
  TRY(storage::assemble(layout, source, resume.memory.get(), "memory for a checkpoint"));
  resume.bytes = layout.total_bytes;
  return resume;
}

Result<bool> is_whole(storage::ObjectStore& objects, const Hash& object, bool verify) {
  if (!objects.has(object)) return false;
  return verify ? objects.verify(object) : Result<bool>(true);
}

}  // namespace skerry::daemon
