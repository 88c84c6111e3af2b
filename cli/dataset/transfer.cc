// SPDX-License-Identifier: Apache-2.0
#include "cli/dataset/transfer.h"

#include "base/progress.h"
#include "base/text.h"
#include "protocol/limits.h"
#include "storage/layout.h"

namespace skerry::cli {
namespace {

constexpr std::size_t kEnvelopeBytes = 1024;

pb::DatasetAdd describe(const DatasetIndex& index, const std::string& name) {
  pb::DatasetAdd add;
  add.set_name(name);
  add.set_index_json(index.json);
  add.set_partitions(index.partitions);
  add.set_samples(index.samples);
  add.set_channels(index.channels);
  add.set_image_size(index.image_size);
  add.set_latents(index.latents);
  if (index.text) {
    add.set_caption_dim(index.text->dim);
    add.set_caption_tokens(index.text->longest);
    add.set_text_encoder(index.text->encoder);
    add.set_sided_captions(index.text->sided);
  }
  for (const std::string& label : index.classes) add.add_classes(label);
  return add;
}

void describe_file(const DatasetFileEntry& file, const storage::NamedManifest& manifest,
                   pb::DatasetFile& announced) {
  announced.mutable_object()->set_manifest(manifest.name.raw());
  announced.mutable_object()->set_manifest_bytes(manifest.encoded.size());
  announced.mutable_object()->set_bytes(file.bytes);
  announced.mutable_object()->set_name(file.name);
  announced.set_role(file.role);
  announced.set_partition(file.partition);
  announced.set_samples(file.samples);
}

}  // namespace

Result<ServedDataset> open_dataset(const DatasetIndex& index, const std::string& name,
                                   Surroundings& around) {
  ServedDataset served;
  served.announcement = describe(index, name);
  served.chunk_store = std::make_unique<exchange::FolderChunkStore>(index.folder);
  std::uint64_t total = 0;
  for (const DatasetFileEntry& file : index.files) total += file.bytes;
  Progress progress(around, "hashing", Progress::Unit::kBytes);
  for (const DatasetFileEntry& file : index.files) {
    const std::string path = index.folder + "/" + file.name;
    ASSIGN_OR_RETURN(const storage::NamedManifest manifest,
                     storage::build_file_manifest(path, file.name));
    describe_file(file, manifest, *served.announcement.add_files());
    TRY(served.chunk_store->offer(manifest, path));
    served.bytes += file.bytes;
    progress.show(served.bytes, total);
  }
  if (served.announcement.ByteSizeLong() + kEnvelopeBytes > protocol::kControlMessageBytes) {
    return fail(ErrorCode::kExhausted,
                text("the description of ", name, " is too long: it has ", index.files.size(),
                     " files; ingest with fewer partitions"));
  }
  return served;
}

}  // namespace skerry::cli
