// SPDX-License-Identifier: Apache-2.0
#include "tests/oracle/fetch_fixture.h"

#include <filesystem>

#include "base/text.h"
#include "cli/ensemble/export_expert.h"
#include "cli/testing/testing.h"
#include "storage/files.h"
#include "storage/layout.h"
#include "storage/testing/testing.h"

namespace skerry::oracle {
namespace {

pb::ObjectRef offer(cli::FakeCoordinator& coordinator, const storage::NamedManifest& manifest) {
  coordinator.chunks[manifest.name] = manifest.encoded;
  pb::ObjectRef object;
  object.set_manifest(manifest.name.raw());
  object.set_manifest_bytes(manifest.encoded.size());
  object.set_bytes(manifest.manifest.bytes());
  return object;
}

Result<void> add_expert(const std::string& path, cli::FakeCoordinator& coordinator,
                        pb::EnsembleReply& ensemble) {
  ASSIGN_OR_RETURN(const storage::Safetensors checkpoint, storage::Safetensors::open(path));
  storage::Manifest facts = storage::checkpoint_facts();
  facts.expert = static_cast<std::uint32_t>(ensemble.experts_size());
  ASSIGN_OR_RETURN(const storage::NamedManifest manifest,
                   storage::build_checkpoint_manifest(checkpoint, facts));
  TRY(storage::for_each_chunk(manifest.manifest, checkpoint,
                              [&](const Hash& hash, std::string_view bytes) -> Result<void> {
                                coordinator.chunks[hash] = bytes;
                                return {};
                              }));
  pb::EnsembleExpert& expert = *ensemble.add_experts();
  expert.set_index(facts.expert);
  *expert.mutable_checkpoint() = offer(coordinator, manifest);
  return {};
}

Result<void> add_statistics(const std::string& folder, int partition,
                            cli::FakeCoordinator& coordinator, pb::EnsembleReply& ensemble) {
  const std::string name =
      partition < 0 ? "router.safetensors" : text("partition-", partition, ".safetensors");
  const std::string path = text(folder, "/", name);
  ASSIGN_OR_RETURN(const storage::NamedManifest manifest, storage::build_file_manifest(path, name));
  ASSIGN_OR_RETURN(const storage::MappedFile statistics, storage::MappedFile::open(path));
  coordinator.chunks[blake2b(statistics.bytes())] = statistics.bytes();  // small: one chunk
  pb::DatasetFile& file = *ensemble.add_router();
  file.set_role(partition < 0 ? "router" : "partition");
  file.set_partition(partition);
  *file.mutable_object() = offer(coordinator, manifest);
  return {};
}

pb::ModelSpec message_of(const ModelSpec& spec) {
  pb::ModelSpec model;
  model.set_image_size(spec.image_size);
  model.set_channels(spec.channels);
  model.set_patch_size(spec.patch_size);
  model.set_width(spec.width);
  model.set_depth(spec.depth);
  model.set_heads(spec.heads);
  model.set_classes(spec.classes);
  model.set_caption_dim(spec.caption_dim);
  if (spec.interpolation_scale != 1) model.set_interpolation_scale(spec.interpolation_scale);
  return model;
}

void describe(const TrainedFiles& files, pb::EnsembleReply& ensemble) {
  pb::RunInfo& run = *ensemble.mutable_run();
  run.set_name("oracle");
  run.set_id("r-0");
  *run.mutable_model() = message_of(files.model);
  ensemble.mutable_dataset()->set_name("random");
  ensemble.mutable_dataset()->set_partitions(static_cast<std::uint32_t>(files.checkpoints.size()));
  for (const std::string& name : files.classes) ensemble.mutable_dataset()->add_classes(name);
}

}  // namespace

Result<void> export_in_shards(const TrainedFiles& files, std::uint64_t shard_bytes,
                              const std::string& folder) {
  ASSIGN_OR_RETURN(const storage::Safetensors checkpoint,
                   storage::Safetensors::open(files.checkpoints[0]));
  cli::WeightSource weights;
  for (const storage::TensorInfo& tensor : checkpoint.header().tensors) {
    if (tensor.name.starts_with("ema/"))
      weights.tensors.push_back({tensor.name.substr(4), tensor.dtype, tensor.shape, {}});
  }
  weights.read = [&](const std::string& name,
                     const cli::WeightSource::Append& append) -> Result<void> {
    ASSIGN_OR_RETURN(const storage::TensorView tensor, checkpoint.tensor("ema/" + name));
    return append(tensor.data);
  };
  std::filesystem::create_directories(folder);
  return cli::export_expert(folder, message_of(files.model), weights, {.shard_bytes = shard_bytes});
}

Result<void> fetch_ensemble(const TrainedFiles& files, const std::string& folder) {
  cli::FakeSurroundings around;
  pb::AdminReply reply;
  pb::EnsembleReply& ensemble = *reply.mutable_ensemble();
  describe(files, ensemble);
  for (const std::string& path : files.checkpoints)
    TRY(add_expert(path, around.coordinator, ensemble));
  for (int k = -1; k < static_cast<int>(files.checkpoints.size()); ++k)
    TRY(add_statistics(files.router_folder, k, around.coordinator, ensemble));
  around.coordinator.answer(pb::AdminRequest::kEnsemble, reply);
  if (around({"ensemble", "fetch", "oracle", "-o", folder, "--raw-weights"}) == 0) return {};
  return fail(ErrorCode::kIo, around.told());
}

}  // namespace skerry::oracle
