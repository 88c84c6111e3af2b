// SPDX-License-Identifier: Apache-2.0
// Keeps objects on a disk that fails, and tries each change again as a careless
// host would. Prints "durable HASH" for each object that the store calls
// durable. Usage: skerry-fail-disk-probe FOLDER
//
// Exits with status 1 if a change fails, though there was room, and the store
// does not say that it has failed.
#include <iostream>
#include <unordered_set>

#include "storage/layout.h"
#include "storage/object_store.h"
#include "storage/rocksdb/rocksdb_store.h"
#include "storage/testing/testing.h"

namespace {

using namespace skerry;
using namespace skerry::storage;

constexpr int kTries = 3;
bool unnoticed = false;

template <class Change>
bool succeeds(Store& store, const Change& change) {
  for (int i = 0; i < kTries; ++i) {
    const Result<void> changed = change();
    if (changed) return true;
    const bool waits = changed.error().code == ErrorCode::kExhausted;
    if (waits || store.failed()) continue;
    std::cerr << "not noticed: " << changed.error().message << '\n';
    unnoticed = true;
  }
  return false;
}

void receive(Store& store, ObjectStore& objects, const NamedManifest& named,
             const std::string& bytes) {
  const Layout layout = value_of(layout_of(named.manifest));
  const auto begun = [&]() -> Result<void> {
    TRY(objects.begin(named));
    return {};
  };
  if (!succeeds(store, begun)) return;
  std::unordered_set<Hash> put;
  for (const Placement& place : layout.placements) {
    if (!put.insert(place.chunk.hash).second) continue;
    const std::string_view chunk = std::string_view(bytes).substr(place.offset, place.chunk.bytes);
    if (!succeeds(store, [&] { return objects.put(named.name, place.chunk.hash, chunk); })) return;
  }
  if (succeeds(store, [&] { return objects.seal(named.name); }))
    std::cout << "durable " << named.name.hex() << std::endl;
}

}  // namespace

int main(int count, char** words) {
  if (count != 2) return 2;
  const std::string folder = words[1];
  const Result<std::unique_ptr<Store>> store =
      open_rocksdb_store(folder + "/store", {.reserve_bytes = 0});
  if (!store) return 0;  // the disk failed before anything was promised
  const Result<std::unique_ptr<ObjectStore>> objects =
      ObjectStore::open(**store, folder + "/objects", Checkpoints::kAsFiles);
  if (!objects) return 0;
  const std::string bytes = snapshot_bytes(1);
  const Safetensors tensors = snapshot(1);
  receive(**store, **objects, value_of(build_checkpoint_manifest(tensors, checkpoint_facts(200))),
          bytes);
  NamedManifest stored;
  const auto kept = [&]() -> Result<void> {
    ASSIGN_OR_RETURN(stored, (*objects)->store_checkpoint(tensors, checkpoint_facts(100)));
    return {};
  };
  if (succeeds(**store, kept)) std::cout << "durable " << stored.name.hex() << std::endl;
  return unnoticed ? 1 : 0;
}
