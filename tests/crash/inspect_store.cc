// SPDX-License-Identifier: Apache-2.0
// skerry-inspect-store DATA node|coordinator [SEED]: what a program that was
// killed left in its data folder. Reads every whole object with every chunk,
// and recomputes each checkpoint of the fake engine from SEED alone. One line
// of JSON for each checkpoint; what is wrong goes to standard error and makes
// the exit code 1.
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>

#include "base/text.h"
#include "storage/layout.h"
#include "storage/object_store.h"
#include "storage/rocksdb/rocksdb_store.h"
#include "tests/fake_engine/chain.h"

namespace skerry {
namespace {

using storage::Manifest;
using storage::ObjectStore;

// The unbroken run's states, each computed once, forwards.
class Unbroken {
 public:
  explicit Unbroken(std::uint64_t seed) : seed_(seed) {}

  // REQUIRES: steps of one expert are asked for in rising order, or from the
  // start again.
  const fake::Chain& at(ExpertIndex expert, Step step) {
    auto chain = chains_.find(expert);
    if (chain == chains_.end() || chain->second.step > step) {
      chain = chains_.insert_or_assign(expert, fake::Chain::start(seed_, expert)).first;
    }
    while (chain->second.step < step) chain->second.advance(0);
    return chain->second;
  }

 private:
  std::uint64_t seed_;
  std::map<ExpertIndex, fake::Chain> chains_;
};

Result<std::string> bytes_of(const ObjectStore& objects, const storage::NamedManifest& named) {
  ASSIGN_OR_RETURN(const storage::Layout layout, storage::safetensors_layout(named.manifest));
  std::string bytes = layout.prefix;
  for (const storage::Placement& placement : layout.placements) {
    ASSIGN_OR_RETURN(const std::string chunk, objects.read(named.name, placement.chunk.hash));
    bytes += chunk;
  }
  return bytes;
}

Result<void> check_weights(const std::string& bytes, const Manifest& facts, Unbroken& unbroken) {
  const auto* part = facts.part(storage::kPartEma);
  if (part == nullptr || part->tensors.size() != 1)
    return fail(ErrorCode::kCorrupt, "not of the fake engine");
  ASSIGN_OR_RETURN(const std::string expected,
                   unbroken.at(facts.expert, facts.step).encode(part->tensors[0].shape.at(0)));
  if (bytes == expected) return {};
  return fail(ErrorCode::kCorrupt, "its bytes are not those of a run that never was interrupted");
}

Result<void> check_object(const ObjectStore& objects, const storage::ObjectInfo& info,
                          Unbroken* unbroken) {
  ASSIGN_OR_RETURN(const storage::NamedManifest named, objects.manifest(info.name));
  for (const storage::Chunk& chunk : storage::distinct_chunks(named.manifest))
    TRY(objects.read(info.name, chunk.hash));
  if (info.kind != storage::ManifestKind::kCheckpoint) return {};
  ASSIGN_OR_RETURN(const std::string bytes, bytes_of(objects, named));
  if (unbroken != nullptr) TRY(check_weights(bytes, named.manifest, *unbroken));
  const Manifest& facts = named.manifest;
  std::cout << "{\"manifest\":\"" << info.name.hex() << "\",\"run\":\"" << facts.run
            << "\",\"expert\":" << facts.expert << ",\"step\":" << facts.step
            << ",\"epoch\":" << facts.epoch.value() << "}\n";
  return {};
}

Result<int> inspect(const std::string& data, const std::string& whose, const char* seed) {
  ASSIGN_OR_RETURN(const auto store, storage::open_rocksdb_store(data + "/store"));
  ASSIGN_OR_RETURN(const auto objects,
                   ObjectStore::open(*store, data + "/objects",
                                     whose == "node" ? storage::Checkpoints::kAsFiles
                                                     : storage::Checkpoints::kInStore));
  Unbroken unbroken(seed == nullptr ? 0 : std::strtoull(seed, nullptr, 10));
  int wrong = 0;
  for (const storage::ObjectInfo& info : objects->list()) {
    const Result<void> right = check_object(*objects, info, seed == nullptr ? nullptr : &unbroken);
    if (right) continue;
    std::cerr << "object " << info.name.hex() << " (run " << info.facts.run << ", expert "
              << info.facts.expert << ", step " << info.facts.step << "): " << right.error().message
              << '\n';
    wrong = 1;
  }
  return wrong;
}

}  // namespace
}  // namespace skerry

int main(int count, char** words) {
  if (count < 3 || count > 4) {
    std::cerr << "usage: skerry-inspect-store DATA node|coordinator [SEED]\n";
    return 2;
  }
  const skerry::Result<int> code =
      skerry::inspect(words[1], words[2], count == 4 ? words[3] : nullptr);
  if (code) return *code;
  std::cerr << "cannot open " << words[1] << ": " << code.error().message << '\n';
  return 1;
}
