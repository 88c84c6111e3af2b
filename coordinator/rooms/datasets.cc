// SPDX-License-Identifier: Apache-2.0
#include "coordinator/rooms/datasets.h"

#include <algorithm>

#include "base/text.h"

namespace skerry::coordinator {

Result<void> check_files(const pb::DatasetAdd& content) {
  if (is_weights(content)) {
    const bool one =
        content.files_size() == 1 && Hash::from_raw(content.files(0).object().manifest());
    return one ? Result<void>()
               : fail(ErrorCode::kInvalid, "weights are one file, and stand alone");
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
    if (of_partition && (file.partition() < 0 ||
                         file.partition() >= static_cast<std::int32_t>(content.partitions()))) {
      return fail(ErrorCode::kInvalid, text("file ", name, " is of partition ", file.partition(),
                                            " of ", content.partitions()));
    }
    if (file.role() == "shard") has_shard[static_cast<std::size_t>(file.partition())] = true;
    if (file.role() == "partition")
      has_statistics[static_cast<std::size_t>(file.partition())] = true;
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

bool uses(const pb::RunSpec& spec, const DatasetName& dataset) {
  return spec.dataset() == dataset.str() || (!spec.init().empty() && spec.init() == dataset.str());
}

std::string digest_of(const pb::DatasetAdd& content) {
  return blake2b(content.SerializeAsString()).raw();
}

const Dataset* Datasets::find(const DatasetName& name) const {
  const auto found = datasets_.find(name);
  return found == datasets_.end() ? nullptr : &found->second;
}

namespace {

// Whether an expert of this run trains with the file.
bool trains_with(const pb::DatasetFile& file, const Run& run) {
  return file.role() == "shard" || (file.role() == "captions" && file.partition() >= 0 &&
                                    run.record->model().caption_dim() > 0);
}

}  // namespace

std::vector<const pb::DatasetFile*> Datasets::files_of(const Run& run, std::uint32_t expert) const {
  const bool is_router = run.is_router(expert);
  std::vector<const pb::DatasetFile*> files;
  for (const pb::DatasetFile& file : content(DatasetName(run.record->spec().dataset())).files()) {
    const bool is_its =
        is_router ? file.role() == "shard"
                  : file.partition() == static_cast<std::int32_t>(expert) && trains_with(file, run);
    if (is_its) files.push_back(&file);
  }
  const DatasetName init(run.record->spec().init());
  if (!init.empty() && !is_router) files.push_back(&content(init).files(0));
  return files;
}

std::vector<std::uint64_t> Datasets::bytes_of_files(const Run& run) const {
  std::vector<std::uint64_t> bytes(run.experts.size());
  std::uint64_t all = 0;
  for (const pb::DatasetFile& file : content(DatasetName(run.record->spec().dataset())).files()) {
    if (!trains_with(file, run)) continue;
    const auto partition = static_cast<std::size_t>(file.partition());
    if (partition < bytes.size()) bytes[partition] += file.object().bytes();
    if (file.role() == "shard") all += file.object().bytes();
  }
  const DatasetName init(run.record->spec().init());
  for (std::size_t e = 0; e < bytes.size(); ++e) {
    if (run.is_router(static_cast<std::uint32_t>(e))) {
      bytes[e] = all;
    } else if (!init.empty()) {
      bytes[e] += content(init).files(0).object().bytes();
    }
  }
  return bytes;
}

const Run* Datasets::user_of(const DatasetName& dataset) const {
  for (const auto& [id, run] : runs_.all()) {
    if (uses(run.record->spec(), dataset)) return &run;
  }
  return nullptr;
}

bool Datasets::is_fetching(const Hash& manifest) const {
  return std::ranges::any_of(
      datasets_, [&](const auto& dataset) { return dataset.second.fetching.contains(manifest); });
}

Result<void> Datasets::check_room() const {
  if (datasets_.size() < config.datasets) return {};
  return fail(ErrorCode::kExhausted, "too many datasets; delete some first");
}

void Datasets::insert(const pb::DatasetAdd& content) {
  Dataset dataset;
  *dataset.record.change().mutable_content() = content;
  dataset.record.change().set_created_unix_ms(now.unix_ms);
  dataset.digest = digest_of(content);
  datasets_.insert(std::move(dataset));
  for (const pb::DatasetFile& file : content.files()) objects_.name(file.object().manifest());
}

void Datasets::erase(const DatasetName& name) {
  const Dataset gone = datasets_.at(name);
  datasets_.erase(name);
  for (const pb::DatasetFile& file : gone.record->content().files())
    objects_.unname(file.object().manifest(), Purpose::kFile);
}

void Datasets::upload(const DatasetName& name, const NodeId& source) {
  Dataset& dataset = datasets_.at(name);
  dataset.source = source;
  dataset.fetching.clear();  // requested again, from the present source
  check_ready(dataset);
  pump(dataset);
}

void Datasets::pump() {
  for (auto& [name, dataset] : datasets_) pump(dataset);
}

void Datasets::stored(const Hash& manifest) {
  for (auto& [name, dataset] : datasets_) {
    dataset.fetching.erase(manifest);
    dataset.progress.erase(manifest);
    check_ready(dataset);
    pump(dataset);
  }
}

void Datasets::failed(const Hash& manifest) {
  for (auto& [name, dataset] : datasets_) {
    if (dataset.fetching.erase(manifest) > 0) dataset.progress.erase(manifest);
  }
}

void Datasets::progress(const ObjectProgress& event) {
  for (auto& [name, dataset] : datasets_) {
    if (dataset.fetching.contains(event.manifest))
      dataset.progress[event.manifest] = event.received_bytes;
  }
}

std::string Datasets::load(stored::Dataset record) {
  for (const pb::DatasetFile& file : record.content().files()) {
    if (!Hash::from_raw(file.object().manifest())) return "a file's manifest is not a hash";
  }
  Dataset dataset;
  dataset.digest = digest_of(record.content());
  dataset.record = Tracked(std::move(record));
  datasets_.load(std::move(dataset));
  return "";
}

void Datasets::pump(Dataset& dataset) {
  if (dataset.source.empty()) return;
  for (const pb::DatasetFile& file : dataset.record->content().files()) {
    if (dataset.fetching.size() >= config.fetches_of_dataset) return;
    const Hash manifest = *Hash::from_raw(file.object().manifest());
    if (objects_.has(manifest) || !dataset.fetching.insert(manifest).second) continue;
    effects.fetches.push_back({manifest, file.object().manifest_bytes(), file.object().bytes(),
                               dataset.source, Purpose::kFile, file.object().name()});
  }
}

bool Datasets::is_whole(const Dataset& dataset) const {
  return std::ranges::all_of(dataset.record->content().files(), [&](const pb::DatasetFile& file) {
    return objects_.has(file.object().manifest());
  });
}

void Datasets::check_ready(Dataset& dataset) {
  if (!is_whole(dataset)) return;
  dataset.source = NodeId();
  dataset.fetching.clear();
  dataset.progress.clear();
  if (dataset.record->ready()) return;
  dataset.record.change().set_ready(true);
  events_.tell(EventKind::kDatasetReady,
               text(dataset.record->content().name(), " is here, every hash verified"));
}

pb::DatasetInfo Datasets::info(const Dataset& dataset, bool with_files) const {
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
  info.set_caption_dim(content.caption_dim());
  info.set_caption_tokens(content.caption_tokens());
  info.set_text_encoder(content.text_encoder());
  info.set_sided_captions(content.sided_captions());
  info.set_created_unix_ms(dataset.record->created_unix_ms());
  *info.mutable_classes() = content.classes();
  std::vector<std::uint64_t> samples(content.partitions());
  std::uint64_t bytes = 0;
  std::uint64_t received = 0;
  for (const pb::DatasetFile& file : content.files()) {
    bytes += file.object().bytes();
    const Hash manifest = *Hash::from_raw(file.object().manifest());
    if (objects_.has(manifest)) {
      received += file.object().bytes();
    } else if (const auto partly = dataset.progress.find(manifest);
               partly != dataset.progress.end()) {
      received += std::min(partly->second, file.object().bytes());
    }
    if (file.role() == "shard")
      samples[static_cast<std::size_t>(file.partition())] += file.samples();
    if (with_files) *info.add_files() = file;
  }
  info.set_bytes(bytes);
  info.set_received_bytes(received);
  for (const std::uint64_t count : samples) info.add_partition_samples(count);
  return info;
}

}  // namespace skerry::coordinator
