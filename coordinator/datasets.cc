#include "base/text.h"
#include "coordinator/machine.h"
#include "protocol/limits.h"

namespace skerry::coordinator {

Result<void> check_files(const pb::DatasetAdd& content) {
  if (is_weights(content)) {
    const bool one = content.files_size() == 1 && Hash::from_raw(content.files(0).object().manifest());
    return one ? Result<void>() : fail(ErrorCode::kInvalid, "weights are one file, and stand alone");
  }
  if (content.samples() == 0) return fail(ErrorCode::kInvalid, "the dataset has no samples");
  std::set<std::string> names;
  std::vector<bool> has_shard(content.partitions()), has_statistics(content.partitions());
  bool has_router = false;
  for (const pb::DatasetFile& file : content.files()) {
    const std::string& name = file.object().name();
    if (!Hash::from_raw(file.object().manifest()))
      return fail(ErrorCode::kInvalid, text("file ", name, " is not named by a hash"));
    if (name.empty() || !names.insert(name).second)
      return fail(ErrorCode::kInvalid, text("file name \"", name, "\" comes twice or is empty"));
    const bool of_partition = file.role() == "shard" || file.role() == "partition";
    if (of_partition &&
        (file.partition() < 0 || file.partition() >= static_cast<std::int32_t>(content.partitions()))) {
      return fail(ErrorCode::kInvalid,
                  text("file ", name, " is of partition ", file.partition(), " of ", content.partitions()));
    }
    if (file.role() == "shard") has_shard[static_cast<std::size_t>(file.partition())] = true;
    if (file.role() == "partition") has_statistics[static_cast<std::size_t>(file.partition())] = true;
    if (file.role() == "router") has_router = true;
  }
  for (std::uint32_t k = 0; k < content.partitions(); ++k) {
    if (!has_shard[k] || !has_statistics[k]) {
      return fail(ErrorCode::kInvalid,
                  text("partition ", k, " has no ", has_shard[k] ? "statistics" : "shard"));
    }
  }
  if (!has_router) return fail(ErrorCode::kInvalid, "the dataset has no router file");
  return {};
}

bool is_weights(const pb::DatasetAdd& content) {
  return std::ranges::any_of(content.files(),
                             [](const pb::DatasetFile& file) { return file.role() == "weights"; });
}

bool uses(const pb::RunSpec& spec, const std::string& dataset) {
  return spec.dataset() == dataset || (!spec.init().empty() && spec.init() == dataset);
}

std::vector<const pb::DatasetFile*> Machine::files_of(const Run& run, std::uint32_t expert) const {
  const bool is_router = run.is_router(expert);
  std::vector<const pb::DatasetFile*> files;
  for (const pb::DatasetFile& file : datasets.at(run.record->spec().dataset()).record->content().files()) {
    const bool is_its = is_router || file.partition() == static_cast<std::int32_t>(expert);
    if (file.role() == "shard" && is_its) files.push_back(&file);
  }
  const std::string& init = run.record->spec().init();
  if (!init.empty() && !is_router) files.push_back(&datasets.at(init).record->content().files(0));
  return files;
}

const Run* Machine::user_of(const std::string& dataset) const {
  for (const auto& [id, run] : runs.all()) {
    if (uses(run.record->spec(), dataset)) return &run;
  }
  return nullptr;
}

AdminResult Machine::dataset_add(const pb::DatasetAdd& request, const Node& person) {
  if (request.name().empty() || request.partitions() == 0 || request.partitions() > protocol::kPartitions) {
    return fail(ErrorCode::kInvalid,
                text("a dataset has a name and 1 to ", protocol::kPartitions, " partitions"));
  }
  TRY(check_files(request));
  const std::string digest = blake2b(request.SerializeAsString()).raw();
  const auto known = datasets.find(request.name());
  if (known != datasets.end() && known->second.digest != digest) {
    return fail(ErrorCode::kConflict, text("dataset ", request.name(),
                                           " exists with other content; choose another name or delete it"));
  }
  if (known == datasets.end()) {
    if (datasets.size() >= config.datasets)
      return fail(ErrorCode::kExhausted, "too many datasets; delete some first");
    std::uint64_t bytes = 0;
    for (const pb::DatasetFile& file : request.files()) bytes += file.object().bytes();
    if (disk_free && *disk_free < config.reserve_bytes + bytes) {
      return fail(ErrorCode::kExhausted,
                  text("the dataset needs ", human_bytes(bytes), " and the coordinator's disk has ",
                       human_bytes(*disk_free), " free"));
    }
    Dataset dataset;
    *dataset.record.change().mutable_content() = request;
    dataset.record.change().set_created_unix_ms(now.unix_ms);
    dataset.digest = digest;
    datasets.insert(std::move(dataset));
    for (const pb::DatasetFile& file : request.files()) name_object(file.object().manifest());
    events.tell("dataset_added",
                text(request.name(), ": ", request.samples(), " samples in ", request.partitions(),
                     " partitions, ", human_bytes(bytes), " to upload"),
                person.record->name());
  }
  Dataset& dataset = datasets.at(request.name());
  dataset.source = NodeId(person.record->id());
  dataset.fetching.clear();  // asked for again, of whoever is here now
  check_ready(dataset);
  pump(dataset);
  pb::AdminReply reply;
  *reply.mutable_datasets()->add_datasets() = dataset_info(dataset, false);
  return reply;
}

// Keeps a few fetches open until all files are there; again where one was found damaged.
void Machine::pump(Dataset& dataset) {
  if (dataset.source.empty()) return;
  for (const pb::DatasetFile& file : dataset.record->content().files()) {
    if (dataset.fetching.size() >= config.fetches_of_dataset) return;
    const Hash manifest = *Hash::from_raw(file.object().manifest());
    if (stored_objects.contains(manifest) || !dataset.fetching.insert(manifest).second) continue;
    effects.fetches.push_back({manifest, file.object().manifest_bytes(), file.object().bytes(),
                               dataset.source, Purpose::kFile, file.object().name()});
  }
}

bool Machine::is_whole(const Dataset& dataset) const {
  return std::ranges::all_of(dataset.record->content().files(), [&](const pb::DatasetFile& file) {
    return stored_objects.contains(*Hash::from_raw(file.object().manifest()));
  });
}

void Machine::check_ready(Dataset& dataset) {
  if (!is_whole(dataset)) return;
  dataset.source = NodeId();
  dataset.fetching.clear();
  dataset.progress.clear();
  if (dataset.record->ready()) return;
  dataset.record.change().set_ready(true);
  events.tell("dataset_ready", text(dataset.record->content().name(), " is here, every hash verified"));
}

pb::DatasetInfo Machine::dataset_info(const Dataset& dataset, bool with_files) const {
  const pb::DatasetAdd& content = dataset.record->content();
  pb::DatasetInfo info;
  info.set_name(content.name());
  const bool is_left_damaged = dataset.record->ready() && dataset.source.empty();
  info.set_state(is_whole(dataset) ? "ready" : is_left_damaged ? "damaged" : "uploading");
  info.set_partitions(content.partitions());
  info.set_samples(content.samples());
  info.set_channels(content.channels());
  info.set_image_size(content.image_size());
  info.set_latents(content.latents());
  info.set_created_unix_ms(dataset.record->created_unix_ms());
  *info.mutable_classes() = content.classes();
  std::vector<std::uint64_t> samples(content.partitions());
  std::uint64_t bytes = 0;
  std::uint64_t received = 0;
  for (const pb::DatasetFile& file : content.files()) {
    bytes += file.object().bytes();
    const Hash manifest = *Hash::from_raw(file.object().manifest());
    if (stored_objects.contains(manifest)) {
      received += file.object().bytes();
    } else if (const auto partly = dataset.progress.find(manifest); partly != dataset.progress.end()) {
      received += std::min(partly->second, file.object().bytes());
    }
    if (file.role() == "shard") samples[static_cast<std::size_t>(file.partition())] += file.samples();
    if (with_files) *info.add_files() = file;
  }
  info.set_bytes(bytes);
  info.set_received_bytes(received);
  for (const std::uint64_t count : samples) info.add_partition_samples(count);
  return info;
}

AdminResult Machine::dataset_list(const pb::ListRequest& request) const {
  pb::AdminReply reply;
  auto& list = *reply.mutable_datasets();
  list.set_next(
      page(datasets, request, protocol::kPageItems, config.reply_bytes, [&](const Dataset& dataset) {
        *list.add_datasets() = dataset_info(dataset, false);
        return list.datasets(list.datasets_size() - 1).ByteSizeLong();
      }));
  return reply;
}

AdminResult Machine::dataset_show(const pb::Named& request) const {
  const auto dataset = datasets.find(request.name());
  if (dataset == datasets.end()) return fail(ErrorCode::kNotFound, text("no dataset ", request.name()));
  pb::AdminReply reply;
  *reply.mutable_datasets()->add_datasets() = dataset_info(dataset->second, true);
  return reply;
}

AdminResult Machine::dataset_delete(const pb::Named& request) {
  const auto dataset = datasets.find(request.name());
  if (dataset == datasets.end()) return fail(ErrorCode::kNotFound, text("no dataset ", request.name()));
  if (const Run* run = user_of(request.name())) {
    return fail(ErrorCode::kConflict, text("run ", run->record->spec().name(), " uses dataset ",
                                           request.name(), "; delete the run first"));
  }
  const Dataset gone = std::move(dataset->second);
  datasets.erase(request.name());
  for (const Hash& fetching : gone.fetching) cancel_fetch(fetching);
  for (const pb::DatasetFile& file : gone.record->content().files()) {
    unname_object(file.object().manifest(), Purpose::kFile);
  }
  events.tell("dataset_deleted", request.name());
  pb::AdminReply reply;
  reply.mutable_ack();
  return reply;
}

}  // namespace skerry::coordinator
