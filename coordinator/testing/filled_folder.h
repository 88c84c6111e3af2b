// SPDX-License-Identifier: Apache-2.0
// A coordinator's data folder on the real store, for tests of its copies.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/temp_folder.h"
#include "coordinator/host/data_folder.h"
#include "coordinator/host/host.h"
#include "coordinator/testing/testing.h"
#include "storage/testing/testing.h"

namespace skerry::coordinator::testing {

using storage::NamedManifest;

// A data folder with dataset "data" of three files and a run of one expert that
// has committed step 10.
class FilledFolder {
 protected:
  FilledFolder() {
    const DataFolder folder = storage::value_of(open_data_folder(from_));
    storage::value_of(protocol::Identity::load_or_create(folder.identity_file()));
    pb::AdminRequest request;
    *request.mutable_dataset_add() = dataset("data", 1);
    for (pb::DatasetFile& file : *request.mutable_dataset_add()->mutable_files()) {
      const bool is_shard = file.role() == "shard";
      const NamedManifest stored = store_file(*folder.objects, file.object().name(),
                                              is_shard ? storage::kMaxChunkBytes + 1000 : 1000);
      if (is_shard) shard_ = stored;
      refer_to(stored, *file.mutable_object());
    }
    harness_.admin_ask(request);
    harness_.store_fetched_files();
    harness_.create_run(run_spec("fashion"));
    node_ = harness_.join("anna");
    checkpoint_ = commit(*folder.objects, 1);
    write_state(*folder.store);
    EXPECT_EQ(folder.objects->list().size(), 4U);
  }

  // The next checkpoint of the run, which the state names from now on.
  NamedManifest commit(storage::ObjectStore& objects, std::uint64_t seed) {
    pb::Commit commit = next_commit(harness_.assignment(node_).slots(0));
    storage::Manifest facts = storage::checkpoint_facts();
    facts.from_step = commit.from_step();
    facts.step = commit.to_step();
    const NamedManifest stored =
        storage::value_of(objects.store_checkpoint(storage::snapshot(seed), facts));
    refer_to(stored, *commit.mutable_manifest());
    EXPECT_EQ(harness_.commit(node_, commit).status(), pb::COMMIT_ACCEPTED);
    return stored;
  }

  void write_state(storage::Store& store) const {
    for (const storage::Entry& entry : storage::value_of(store.scan(kStatePrefix)))
      storage::value_of(store.write({{entry.key, std::nullopt}}));
    for (const auto& [key, value] : harness_.disk)
      storage::value_of(store.write({{kStatePrefix + key, value}}));
  }

  static void refer_to(const NamedManifest& object, pb::ObjectRef& reference) {
    reference.set_manifest(object.name.raw());
    reference.set_manifest_bytes(object.encoded.size());
    reference.set_bytes(object.manifest.bytes());
  }

  NamedManifest store_file(storage::ObjectStore& objects, const std::string& name,
                           std::size_t bytes) {
    const std::string contents = storage::random_bytes(bytes, ++files_);
    std::ofstream(folder_ / name, std::ios::binary) << contents;
    NamedManifest named = storage::value_of(storage::build_file_manifest(folder_ / name, name));
    storage::value_of(objects.begin(named));
    for (const storage::Placement& place :
         storage::value_of(storage::layout_of(named.manifest)).placements)
      storage::value_of(objects.put(named.name, place.chunk.hash,
                                    contents.substr(place.offset, place.chunk.bytes)));
    storage::value_of(objects.seal(named.name));
    return named;
  }

  std::filesystem::path file_of(const NamedManifest& object) const {
    return from_ / "objects" / object.name.hex();
  }
  // The table with the checkpoint's chunks.
  std::filesystem::path table() const {
    std::filesystem::path largest;
    for (const auto& entry : std::filesystem::directory_iterator(from_ / "store" / "db")) {
      const bool is_table = entry.path().extension() == ".sst";
      if (is_table && (largest.empty() || entry.file_size() > std::filesystem::file_size(largest)))
        largest = entry.path();
    }
    return largest;
  }

  std::string line_on_shard() const {
    return "dataset data, file shard-0-0.safetensors (object " + shard_.name.short_hex() + ")";
  }
  std::string line_on_checkpoint() const {
    return "run fashion, expert 0, step 10 (object " + checkpoint_.name.short_hex() + ")";
  }

  TempFolder folder_;
  const std::filesystem::path from_ = folder_.path() / "data";
  const std::filesystem::path restored_ = folder_.path() / "restored";
  mutable Harness harness_;
  Who node_;
  std::uint64_t files_ = 0;
  NamedManifest shard_;
  NamedManifest checkpoint_;
};

}  // namespace skerry::coordinator::testing
