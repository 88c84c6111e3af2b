// SPDX-License-Identifier: Apache-2.0
// What people ask about objects: which there are, and whether they are whole
// where the coordinator keeps them.
#include "coordinator/admin/admin.h"
#include "coordinator/admin/views.h"
#include "protocol/limits.h"

namespace skerry::coordinator {
namespace {

std::string object_state(const Rooms& rooms, const Hash& manifest) {
  if (rooms.objects.is_damaged(manifest)) return "damaged";
  return rooms.objects.has(manifest) ? "whole" : "arriving";
}

// What durable state names, once each.
std::map<Hash, pb::ObjectInfo> object_infos(const Rooms& rooms, const Run* only) {
  std::map<Hash, pb::ObjectInfo> found;
  const auto add = [&](const pb::ObjectRef& object) -> pb::ObjectInfo& {
    const Hash manifest = *Hash::from_raw(object.manifest());
    pb::ObjectInfo& info = found[manifest];
    *info.mutable_object() = object;
    info.set_expert(-1);
    info.set_state(object_state(rooms, manifest));
    return info;
  };
  rooms.runs.visit_checkpoints(
      [&](const Run& run, const Expert& expert, const stored::Checkpoint& checkpoint) {
        if (only != nullptr && &run != only) return;
        pb::ObjectInfo& info = add(object_ref(checkpoint));
        info.set_kind("checkpoint");
        info.set_run(run.record->spec().name());
        info.set_expert(static_cast<std::int32_t>(expert.record->index()));
        info.set_step(checkpoint.step());
      });
  rooms.datasets.visit_files([&](const DatasetName& name, const pb::DatasetFile& file) {
    if (only != nullptr && only->record->spec().dataset() != name.str()) return;
    pb::ObjectInfo& info = add(file.object());
    info.set_kind(file.role());
    info.set_dataset(name.str());
    info.set_expert(file.partition());
  });
  return found;
}

}  // namespace

AdminResult object_list(const Rooms& rooms, const pb::ObjectList& request) {
  const Run* only = nullptr;
  if (!request.run().empty()) {
    ASSIGN_OR_RETURN(only, find_run(rooms, request.run()));
  }
  const std::size_t limit = request.limit() == 0
                                ? protocol::kPageItems
                                : std::min<std::size_t>(request.limit(), protocol::kPageItems);
  const std::map<Hash, pb::ObjectInfo> all = object_infos(rooms, only);
  pb::AdminReply reply;
  auto& list = *reply.mutable_objects();
  std::size_t bytes = 0;
  auto next =
      request.after().empty() ? all.begin() : all.upper_bound(*Hash::from_raw(request.after()));
  for (; next != all.end(); ++next) {
    if (static_cast<std::size_t>(list.objects_size()) >= limit ||
        bytes >= rooms.config.reply_bytes) {
      list.set_next(list.objects(list.objects_size() - 1).object().manifest());
      break;
    }
    *list.add_objects() = next->second;
    bytes += next->second.ByteSizeLong();
  }
  return reply;
}

AdminResult object_verify(Rooms& rooms, const pb::ObjectVerify& request) {
  const Hash manifest = *Hash::from_raw(request.manifest());
  return rooms.objects.verify(manifest, trouble_of(rooms, manifest));
}

}  // namespace skerry::coordinator
