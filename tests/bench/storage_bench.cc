// SPDX-License-Identifier: Apache-2.0
// storage_bench FOLDER [MIB]: stores one checkpoint of about 500 MB in the
// object store, as the daemon stores a snapshot from shared memory. Hashes,
// writes and seals it, reads it back and drops it. Then it seals it as a node
// does, to files, in turns with plain writes and a sync of as many bytes. The
// last line is JSON.
//
// storage_bench FOLDER MIB node|coordinator: the same, by commands on standard
// input. Each is answered by its seconds:
//   - "write" stores the checkpoint durably, as a node or a coordinator does.
//   - "read" verifies every chunk. A node maps the bytes for its engine; a
//     coordinator reads them into memory, chunk by chunk, for its peers.
//   - "drop" removes it.
// The tensors are in FOLDER/tensors.safetensors for rival programs.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <span>
#include <string>
#include <thread>

#include "base/check.h"
#include "base/random.h"
#include "base/text.h"
#include "storage/files.h"
#include "storage/layout.h"
#include "storage/object_store.h"
#include "storage/rocksdb/rocksdb_store.h"
#include "tests/bench/measure.h"

namespace skerry::storage {
namespace {

using bench::seconds_of;

template <class T>
T value_of(Result<T> result) {
  SKERRY_CHECK(result.has_value(), result.has_value() ? std::string() : result.error().message);
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

double anonymous_mib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::strtod(line.c_str() + 8, nullptr) / 1024;
  }
  return 0;
}

// The highest anonymous memory while it lives.
class Peak {
 public:
  Peak() {
    thread_ = std::thread([this] {
      while (!done_) {
        peak_ = std::max(peak_.load(), anonymous_mib());
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    });
  }
  ~Peak() {
    done_ = true;
    thread_.join();
  }
  double mib() const { return peak_; }

 private:
  std::atomic<bool> done_ = false;
  std::atomic<double> peak_ = 0;
  std::thread thread_;
};

// `mib` MiB in tensors of 6 MiB, no two chunks equal.
int make_snapshot(std::uint64_t mib, std::uint64_t& bytes) {
  const std::uint64_t each = 6 << 20;
  std::vector<TensorView> views;
  for (std::uint64_t i = 0; i * 6 < mib; ++i) {
    views.push_back({(i % 4 == 0 ? "ema/" : "raw/") + std::to_string(i), DType::kU8, {each}, {}});
  }
  const std::string header = value_of(safetensors_header(views, {}));
  const int descriptor = ::memfd_create("snapshot", MFD_CLOEXEC);
  value_of(write_all(descriptor, header, "snapshot"));
  std::string block(each, '\0');
  Stream random(Position{.seed = 1, .purpose = Purpose::kSimulation});
  for (std::size_t i = 0; i + 8 <= block.size(); i += 8) {
    const std::uint64_t word = random.u64();
    block.replace(i, 8, reinterpret_cast<const char*>(&word), 8);
  }
  for (std::uint64_t i = 0; i < views.size(); ++i) {
    block.replace(0, 8, reinterpret_cast<const char*>(&i), 8);
    block.replace(kMaxChunkBytes, 8, reinterpret_cast<const char*>(&i), 8);
    value_of(write_all(descriptor, block, "snapshot"));
  }
  bytes = header.size() + each * views.size();
  return descriptor;
}

void write_plainly(const std::string& path, std::string_view bytes) {
  const int descriptor = ::open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
  value_of(write_all(descriptor, bytes, path));
  SKERRY_CHECK(::fsync(descriptor) == 0, "fsync failed");
  ::close(descriptor);
}

struct Seal {
  double seconds = 0;        // of a node, the median
  double plain_seconds = 0;  // of plain writes and a sync, in turns with it
};

Seal seal_in_turns(const std::string& folder, const Safetensors& tensors, const Manifest& facts) {
  constexpr int kTurns = 5;
  const auto store = value_of(open_rocksdb_store(folder + "/node-store"));
  const auto objects =
      value_of(ObjectStore::open(*store, folder + "/node-files", Checkpoints::kAsFiles));
  const std::string plain = folder + "/plain";
  std::vector<double> seals, writes;
  for (int turn = 0; turn < kTurns; ++turn) {
    Hash name;
    const auto seal = [&] { name = value_of(objects->store_checkpoint(tensors, facts)).name; };
    const auto write = [&] { write_plainly(plain, tensors.file()); };
    // Each goes first in some turns: the disk still writes what came before.
    if (turn % 2 == 0) writes.push_back(seconds_of(write));
    seals.push_back(seconds_of(seal));
    if (turn % 2 != 0) writes.push_back(seconds_of(write));
    value_of(objects->drop(name));
    ::unlink(plain.c_str());
    ::sync();
  }
  std::ranges::sort(seals);
  std::ranges::sort(writes);
  return {seals[kTurns / 2], writes[kTurns / 2]};
}

class Turns {
 public:
  Turns(const std::string& folder, std::uint64_t mib, Checkpoints checkpoints)
      : descriptor_(make_snapshot(mib, bytes_)),
        store_(value_of(open_rocksdb_store(folder + "/store"))),
        objects_(value_of(ObjectStore::open(*store_, folder + "/files", checkpoints))),
        checkpoints_(checkpoints),
        tensors_(value_of(Safetensors::map(descriptor_, bytes_))) {
    std::ofstream(folder + "/tensors.safetensors", std::ios::binary) << tensors_.file();
    facts_.run = RunId("r-bench");
    facts_.kind = ManifestKind::kCheckpoint;
    facts_.step = 100;
  }

  void serve() {
    std::cout << bytes_ << std::endl;
    for (std::string asked; std::getline(std::cin, asked);) {
      std::cout << seconds_of([&] {
        asked == "write" ? write() : asked == "read" ? read() : drop();
      }) << std::endl;
    }
  }

 private:
  void write() { name_ = value_of(objects_->store_checkpoint(tensors_, facts_)).name; }
  void read() {
    value_of(objects_->check(name_));
    if (checkpoints_ == Checkpoints::kAsFiles)
      value_of(MappedFile::open(value_of(objects_->path_of(name_))));
  }
  void drop() { value_of(objects_->drop(name_)); }

  std::uint64_t bytes_ = 0;
  int descriptor_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<ObjectStore> objects_;
  Checkpoints checkpoints_;
  Safetensors tensors_;
  Manifest facts_;
  Hash name_;
};

int run(const std::string& folder, std::uint64_t mib) {
  std::uint64_t bytes = 0;
  const int descriptor = make_snapshot(mib, bytes);
  const Peak peak;
  const auto store = value_of(open_rocksdb_store(folder + "/store"));
  const auto objects =
      value_of(ObjectStore::open(*store, folder + "/files", Checkpoints::kInStore));
  const double idle_mib = anonymous_mib();
  const Safetensors tensors = value_of(Safetensors::map(descriptor, bytes));
  Manifest facts;
  facts.run = RunId("r-bench");
  facts.step = 100;
  NamedManifest named;
  const double hash_s =
      seconds_of([&] { named = value_of(build_checkpoint_manifest(tensors, facts)); });
  const double write_s = seconds_of([&] {
    value_of(objects->begin(named));
    value_of(for_each_chunk(named.manifest, tensors, [&](const Hash& hash, std::string_view chunk) {
      return objects->put(named.name, hash, chunk);
    }));
    value_of(objects->seal(named.name));
  });
  const double write_peak_mib = peak.mib();
  const double read_s = seconds_of([&] { value_of(objects->check(named.name)); });
  const double drop_s = seconds_of([&] { value_of(objects->drop(named.name)); });
  const double peak_mib = peak.mib();
  const Seal node = seal_in_turns(folder, tensors, facts);
  ::close(descriptor);
  const double megabytes = static_cast<double>(bytes) / 1e6;
  std::cout << "checkpoint " << megabytes << " MB: hash " << megabytes / hash_s
            << " MB/s, write and seal " << megabytes / write_s << " MB/s, read and verify "
            << megabytes / read_s << " MB/s, drop " << drop_s << " s\nanonymous memory: idle "
            << idle_mib << " MiB, peak " << peak_mib << " MiB (writing " << write_peak_mib
            << ")\na node seals it at " << megabytes / node.seconds << " MB/s, plain writes reach "
            << megabytes / node.plain_seconds << " MB/s\n"
            << text("{\"bytes\":", bytes, ",\"hash_mb_s\":", megabytes / hash_s,
                    ",\"seal_mb_s\":", megabytes / write_s, ",\"read_mb_s\":", megabytes / read_s,
                    ",\"node_seal_of_disk\":", node.plain_seconds / node.seconds,
                    ",\"drop_seconds\":", drop_s, ",\"idle_anon_mib\":", idle_mib,
                    ",\"peak_anon_mib\":", peak_mib, "}\n");
  return 0;
}

}  // namespace
}  // namespace skerry::storage

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: storage_bench FOLDER [MIB]\n";
    return 2;
  }
  const std::uint64_t mib = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 480;
  if (argc > 3) {
    using skerry::storage::Checkpoints;
    const bool is_node = std::string_view(argv[3]) == "node";
    skerry::storage::Turns(argv[1], mib, is_node ? Checkpoints::kAsFiles : Checkpoints::kInStore)
        .serve();
    return 0;
  }
  return skerry::storage::run(argv[1], mib);
}
