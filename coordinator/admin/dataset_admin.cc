// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"
#include "coordinator/admin/admin.h"
#include "protocol/limits.h"

namespace skerry::coordinator {

AdminResult dataset_add(Rooms& rooms, const pb::DatasetAdd& request, const Node& person) {
  if (request.name().empty() || request.partitions() == 0 ||
      request.partitions() > protocol::kPartitions) {
    return fail(ErrorCode::kInvalid,
                text("a dataset has a name and 1 to ", protocol::kPartitions, " partitions"));
  }
  TRY(check_files(request));
  const Dataset* known = rooms.datasets.find(DatasetName(request.name()));
  if (known != nullptr && known->digest != digest_of(request)) {
    return fail(ErrorCode::kConflict,
                text("dataset ", request.name(),
                     " exists with other content; choose another name or delete it"));
  }
  if (known == nullptr) {
    TRY(rooms.datasets.check_room());
    std::uint64_t bytes = 0;
    for (const pb::DatasetFile& file : request.files()) bytes += file.object().bytes();
    TRY(rooms.objects.check_room(bytes, "the dataset"));
    rooms.datasets.insert(request);
    rooms.events.tell(EventKind::kDatasetAdded,
                      text(request.name(), ": ", request.samples(), " samples in ",
                           request.partitions(), " partitions, ", human_bytes(bytes), " to upload"),
                      person.record->name());
  }
  rooms.datasets.upload(DatasetName(request.name()), person.id());
  pb::AdminReply reply;
  *reply.mutable_datasets()->add_datasets() =
      rooms.datasets.info(rooms.datasets.at(DatasetName(request.name())), false);
  return reply;
}

AdminResult dataset_list(const Rooms& rooms, const pb::ListRequest& request) {
  pb::AdminReply reply;
  auto& list = *reply.mutable_datasets();
  list.set_next(page(rooms.datasets.all(), request, protocol::kPageItems, rooms.config.reply_bytes,
                     [&](const Dataset& dataset) {
                       *list.add_datasets() = rooms.datasets.info(dataset, false);
                       return list.datasets(list.datasets_size() - 1).ByteSizeLong();
                     }));
  return reply;
}

AdminResult dataset_show(const Rooms& rooms, const pb::Named& request) {
  const Dataset* dataset = rooms.datasets.find(DatasetName(request.name()));
  if (dataset == nullptr) return fail(ErrorCode::kNotFound, text("no dataset ", request.name()));
  pb::AdminReply reply;
  *reply.mutable_datasets()->add_datasets() = rooms.datasets.info(*dataset, true);
  return reply;
}

AdminResult dataset_delete(Rooms& rooms, const pb::Named& request) {
  const Dataset* dataset = rooms.datasets.find(DatasetName(request.name()));
  if (dataset == nullptr) return fail(ErrorCode::kNotFound, text("no dataset ", request.name()));
  if (const Run* run = rooms.datasets.user_of(DatasetName(request.name()))) {
    return fail(ErrorCode::kConflict, text("run ", run->record->spec().name(), " uses dataset ",
                                           request.name(), "; delete the run first"));
  }
  rooms.datasets.erase(DatasetName(request.name()));
  rooms.events.tell(EventKind::kDatasetDeleted, request.name());
  return acknowledged();
}

}  // namespace skerry::coordinator
