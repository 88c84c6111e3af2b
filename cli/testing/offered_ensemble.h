// SPDX-License-Identifier: Apache-2.0
// Fixture for tests that fetch an ensemble.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/temp_folder.h"
#include "base/text.h"
#include "cli/testing/synthetic_checkpoint.h"
#include "cli/testing/testing.h"
#include "storage/layout.h"

namespace skerry::cli {

// A coordinator that holds a run of two experts, the second one unfinished.
class OfferedEnsemble : public testing::Test {
 protected:
  OfferedEnsemble() {
    pb::RunInfo& run = *ensemble.mutable_run();
    run.set_id("r-0123456789");
    run.set_name("fashion");
    run.set_state("running");
    *run.mutable_model() = small_model(2);
    ensemble.mutable_dataset()->set_name("shapes");
    ensemble.mutable_dataset()->set_partitions(2);
    ensemble.mutable_dataset()->add_classes("disc");
    ensemble.mutable_dataset()->add_classes("square");
    add_expert(0, 100);
    add_expert(1, 60);
    add_router("router", -1, "shared statistics");
    add_router("partition", 0, "statistics of 0");
    add_router("partition", 1, "statistics of 1");
    answer();
  }

  void answer() {
    pb::AdminReply reply;
    *reply.mutable_ensemble() = ensemble;
    around.coordinator.answer(pb::AdminRequest::kEnsemble, reply);
  }

  pb::ObjectRef offer(const storage::NamedManifest& manifest, const std::string& name) {
    around.coordinator.chunks[manifest.name] = manifest.encoded;
    pb::ObjectRef object;
    object.set_manifest(manifest.name.raw());
    object.set_manifest_bytes(manifest.encoded.size());
    object.set_bytes(manifest.manifest.bytes());
    object.set_name(name);
    return object;
  }

  void add_expert(std::uint32_t index, std::uint64_t step) {
    commit(*ensemble.add_experts(), index, step);
  }

  void commit(pb::EnsembleExpert& expert, std::uint32_t index, std::uint64_t step) {
    checkpoints.emplace_back(small_model(2), index + 1);
    const auto snapshot =
        storage::value_of(storage::Safetensors::parse(checkpoints.back().snapshot(lean)));
    storage::Manifest facts = storage::checkpoint_facts(step);
    facts.expert = index;
    const auto manifest = storage::value_of(storage::build_checkpoint_manifest(snapshot, facts));
    storage::value_of(
        storage::for_each_chunk(manifest.manifest, snapshot,
                                [this](const Hash& hash, std::string_view bytes) -> Result<void> {
                                  around.coordinator.chunks[hash] = bytes;
                                  return {};
                                }));
    expert.set_index(index);
    expert.set_step(step);
    expert.set_steps_target(100);
    expert.set_partition_samples(500 + index);
    *expert.mutable_checkpoint() = offer(manifest, "");
  }

  void add_router(const std::string& role, std::int32_t partition, const std::string& bytes) {
    const std::string name =
        partition < 0 ? role + ".safetensors" : text(role, "-", partition, ".safetensors");
    std::ofstream(folder / name) << bytes;
    const auto manifest = storage::value_of(storage::build_file_manifest(folder / name, name));
    around.coordinator.chunks[blake2b(bytes)] = bytes;
    pb::DatasetFile& file = *ensemble.add_router();
    file.set_role(role);
    file.set_partition(partition);
    *file.mutable_object() = offer(manifest, name);
  }

  std::string read(const std::string& name) {
    std::ifstream file(out + "/" + name, std::ios::binary);
    std::ostringstream bytes;
    bytes << file.rdbuf();
    return bytes.str();
  }

  TempFolder folder;
  bool lean = false;  // the form of the checkpoints
  std::string out = folder / "ensemble";
  FakeSurroundings around;
  pb::EnsembleReply ensemble;
  std::vector<SyntheticCheckpoint> checkpoints;
};

}  // namespace skerry::cli
