// SPDX-License-Identifier: Apache-2.0
// One object to many, on a virtual network and clock: copies that the
// coordinator sends, and how much longer sixteen take than one. Every party's
// upload is limited, by the exchange itself; disks are memory. The last line is
// JSON.
#include <cstdio>
#include <set>

#include "exchange/testing/testing.h"

namespace skerry::exchange {
namespace {

constexpr std::size_t kObjectBytes = 128 << 20;
constexpr std::uint64_t kUploadLimit = 16'000'000;

// Chunks that all parties share in memory; each knows which of them it has.
struct Library {
  storage::NamedManifest object;
  std::map<Hash, std::string> chunks;
};

Library make_library() {
  Library library;
  storage::Manifest facts;
  facts.name = "object";
  facts.parts.push_back({std::string(storage::kPartFile), {}, {}});
  for (std::size_t at = 0; at < kObjectBytes; at += storage::kMaxChunkBytes) {
    const std::string bytes = storage::random_bytes(storage::kMaxChunkBytes, at);
    facts.parts[0].chunks.push_back({blake2b(bytes), storage::kMaxChunkBytes});
    library.chunks[blake2b(bytes)] = bytes;
  }
  library.object = value_of(storage::encode_manifest(facts));
  return library;
}

class LibraryChunkStore final : public ChunkStore {
 public:
  LibraryChunkStore(const Library& library, bool is_whole)
      : library_(library), is_whole_(is_whole) {}
  Result<std::vector<Hash>> open(const storage::NamedManifest&,
                                 const std::vector<std::string>&) override {
    is_open_ = true;
    return std::vector<Hash>(has_.begin(), has_.end());
  }
  Result<void> write(const Hash&, const Hash& chunk, std::string_view) override {
    has_.insert(chunk);
    return {};
  }
  Result<void> seal(const Hash&) override {
    is_whole_ = true;
    return {};
  }
  Result<std::string> read(const Hash& object, const Hash& chunk) override {
    if (chunk == object && (is_whole_ || is_open_)) return library_.object.encoded;
    if (is_whole_ || has_.contains(chunk)) return library_.chunks.at(chunk);
    return fail(ErrorCode::kNotFound, "not here");
  }
  Result<void> find(const Hash&) override {
    return is_whole_ ? Result<void>() : fail(ErrorCode::kNotFound, "not here");
  }
  bool is_whole() const { return is_whole_; }

 private:
  const Library& library_;
  std::set<Hash> has_;
  bool is_open_ = false;
  bool is_whole_ = false;
};

struct Figures {
  double seconds = 0;
  double copies = 0;
};

Figures measure(const Library& library, unsigned number) {
  World world;
  world.faults.delay_most = std::chrono::milliseconds(20);
  const Config config{.upload_limit = kUploadLimit};
  const auto add = [&](const std::string& name, bool is_whole) -> Party& {
    Party& party = world.add(name, config);
    party.chunk_store = std::make_unique<LibraryChunkStore>(library, is_whole);
    return party;
  };
  Party& coordinator = add("coordinator", true);
  std::vector<Party*> nodes;
  for (unsigned i = 0; i < number; ++i) {
    Party& node = add("node " + std::to_string(i), false);
    world.connect(node, coordinator);
    for (Party* other : nodes) world.connect(node, *other);
    nodes.push_back(&node);
  }
  for (Party* node : nodes) {
    node->exchange->fetch({.object = library.object.name, .last_resort = {coordinator.name}},
                          world.now());
    world.settle(*node);
  }
  const bool done = world.run([&] {
    return std::all_of(nodes.begin(), nodes.end(), [](const Party* node) {
      return static_cast<const LibraryChunkStore&>(*node->chunk_store).is_whole();
    });
  });
  SKERRY_CHECK(done, "a node did not get the object");
  double sent = 0;
  for (const auto& [node, bytes] : coordinator.sent_bytes) sent += static_cast<double>(bytes);
  return {std::chrono::duration<double>(world.now().boot).count(), sent / kObjectBytes};
}

void run() {
  const Library library = make_library();
  std::printf(
      "virtual network: every line as fast as its upload limit of 16 MB/s, up to 20 ms each way\n");
  const Figures one = measure(library, 1);
  const Figures all = measure(library, 16);
  std::printf("1 node: %.2f s, %.2f copies; 16 nodes: %.2f s, %.2f copies\n", one.seconds,
              one.copies, all.seconds, all.copies);
  std::printf("{\"network\": \"virtual\", \"coordinator_copies\": %.2f, \"ratio_16_to_1\": %.2f}\n",
              all.copies, all.seconds / one.seconds);
}

}  // namespace
}  // namespace skerry::exchange

int main() { skerry::exchange::run(); }
