#include "base/text.h"
#include "coordinator/machine.h"
#include "protocol/limits.h"

namespace skerry::coordinator {

AdminResult Machine::dataset_add(const pb::DatasetAdd& request, const Node& person) {
  if (request.name().empty() || request.partitions() == 0 || request.partitions() > protocol::kPartitions) {
    return fail(ErrorCode::kInvalid,
                text("a dataset has a name and 1 to ", protocol::kPartitions, " partitions"));
  }
  TRY(check_files(request));
  const Dataset* known = datasets.find(request.name());
  if (known != nullptr && known->digest != digest_of(request)) {
    return fail(ErrorCode::kConflict, text("dataset ", request.name(),
                                           " exists with other content; choose another name or delete it"));
  }
  if (known == nullptr) {
    TRY(datasets.check_room());
    std::uint64_t bytes = 0;
    for (const pb::DatasetFile& file : request.files()) bytes += file.object().bytes();
    if (!objects.has_room(bytes)) {
      return fail(ErrorCode::kExhausted,
                  text("the dataset needs ", human_bytes(bytes), " and the coordinator's disk has ",
                       human_bytes(objects.disk_free()), " free"));
    }
    datasets.insert(request);
    events.tell("dataset_added",
                text(request.name(), ": ", request.samples(), " samples in ", request.partitions(),
                     " partitions, ", human_bytes(bytes), " to upload"),
                person.record->name());
  }
  datasets.upload(request.name(), NodeId(person.record->id()));
  pb::AdminReply reply;
  *reply.mutable_datasets()->add_datasets() = datasets.info(datasets.at(request.name()), false);
  return reply;
}

AdminResult Machine::dataset_list(const pb::ListRequest& request) const {
  pb::AdminReply reply;
  auto& list = *reply.mutable_datasets();
  list.set_next(
      page(datasets.all(), request, protocol::kPageItems, config.reply_bytes, [&](const Dataset& dataset) {
        *list.add_datasets() = datasets.info(dataset, false);
        return list.datasets(list.datasets_size() - 1).ByteSizeLong();
      }));
  return reply;
}

AdminResult Machine::dataset_show(const pb::Named& request) const {
  const Dataset* dataset = datasets.find(request.name());
  if (dataset == nullptr) return fail(ErrorCode::kNotFound, text("no dataset ", request.name()));
  pb::AdminReply reply;
  *reply.mutable_datasets()->add_datasets() = datasets.info(*dataset, true);
  return reply;
}

AdminResult Machine::dataset_delete(const pb::Named& request) {
  const Dataset* dataset = datasets.find(request.name());
  if (dataset == nullptr) return fail(ErrorCode::kNotFound, text("no dataset ", request.name()));
  if (const Run* run = datasets.user_of(request.name())) {
    return fail(ErrorCode::kConflict, text("run ", run->record->spec().name(), " uses dataset ",
                                           request.name(), "; delete the run first"));
  }
  for (const Hash& fetching : datasets.erase(request.name())) commits.cancel_fetch(fetching);
  events.tell("dataset_deleted", request.name());
  return acknowledged();
}

}  // namespace skerry::coordinator
