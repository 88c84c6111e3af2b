// SPDX-License-Identifier: Apache-2.0 Four peers send to one over CURVE on
// loopback. Compares the exchange on the project's transport with as many bare
// ZeroMQ connections of the same message size. Both receivers hash and keep
// every message. First into memory, in turns; then the exchange into a folder.
// All parties are one process, so its CPU time covers both ends. The last line
// is JSON.
#include <sys/resource.h>
#include <zmq.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <set>
#include <thread>

#include "base/check.h"
#include "base/temp_folder.h"
#include "exchange/chunk_store.h"
#include "exchange/exchange.h"
#include "protocol/validate.h"
#include "protocol/zmq_transport.h"
#include "storage/testing/testing.h"

namespace skerry::exchange {
namespace {

using protocol::Endpoint;
using storage::value_of;

constexpr std::size_t kChunks = 128;
constexpr unsigned kGivers = 4;
constexpr int kRounds = 5;
constexpr int kQueue = 16;  // as the transport's for blobs

struct Library {
  storage::NamedManifest object;
  std::vector<std::string> chunks;
  std::map<Hash, std::size_t> by_hash;
};

Library make_library() {
  Library library;
  storage::Manifest facts;
  facts.name = "object";
  facts.parts.push_back({std::string(storage::kPartFile), {}, {}});
  for (std::size_t i = 0; i < kChunks; ++i) {
    library.chunks.push_back(storage::random_bytes(storage::kMaxChunkBytes, i));
    const Hash hash = blake2b(library.chunks.back());
    library.by_hash[hash] = i;
    facts.parts[0].chunks.push_back({hash, storage::kMaxChunkBytes});
  }
  library.object = value_of(storage::encode_manifest(facts));
  return library;
}

class SourceChunkStore final : public ChunkStore {
 public:
  explicit SourceChunkStore(const Library& library) : library_(library) {}
  Result<std::vector<Hash>> open(const storage::NamedManifest&,
                                 const std::vector<std::string>&) override {
    return fail(ErrorCode::kInvalid, "only gives");
  }
  Result<void> write(const Hash&, const Hash&, std::string_view) override { return {}; }
  Result<void> seal(const Hash&) override { return {}; }
  Result<std::string> read(const Hash& object, const Hash& chunk) override {
    return chunk == object ? library_.object.encoded
                           : library_.chunks.at(library_.by_hash.at(chunk));
  }
  Result<void> find(const Hash&) override { return {}; }

 private:
  const Library& library_;
};

class MemoryChunkStore final : public ChunkStore {
 public:
  Result<std::vector<Hash>> open(const storage::NamedManifest&,
                                 const std::vector<std::string>&) override {
    return std::vector<Hash>();
  }
  Result<void> write(const Hash&, const Hash&, std::string_view bytes) override {
    kept_.emplace_back(bytes);
    return {};
  }
  Result<void> seal(const Hash&) override { return {}; }
  Result<std::string> read(const Hash&, const Hash&) override {
    return fail(ErrorCode::kNotFound, "");
  }
  Result<void> find(const Hash&) override { return fail(ErrorCode::kNotFound, ""); }

 private:
  std::deque<std::string> kept_;
};

struct Figures {
  double bytes_per_second = 0;
  double cpu_seconds_per_gib = 0;
};

class Watch {
 public:
  Figures stop() const {
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start_;
    const double bytes = static_cast<double>(kChunks) * storage::kMaxChunkBytes;
    return {bytes / took.count(), (cpu_seconds() - cpu_) / (bytes / (1 << 30))};
  }

 private:
  static double cpu_seconds() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto of = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
    };
    return of(usage.ru_utime) + of(usage.ru_stime);
  }
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double cpu_ = cpu_seconds();
};

// ---- Bare ----

void* bare_socket(void* context, int type, const char* server_key) {
  void* socket = zmq_socket(context, type);
  char own_public[41], own_secret[41];
  SKERRY_CHECK(zmq_curve_keypair(own_public, own_secret) == 0, "a key pair");
  zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, own_public, 41);
  zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, own_secret, 41);
  zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, server_key, 41);
  zmq_setsockopt(socket, ZMQ_SNDHWM, &kQueue, sizeof kQueue);
  return socket;
}

Figures measure_bare(const Library& library) {
  void* context = zmq_ctx_new();
  void* sink = zmq_socket(context, ZMQ_PULL);
  char server_public[41], server_secret[41];
  SKERRY_CHECK(zmq_curve_keypair(server_public, server_secret) == 0, "a key pair");
  const int yes = 1;
  zmq_setsockopt(sink, ZMQ_CURVE_SERVER, &yes, sizeof yes);
  zmq_setsockopt(sink, ZMQ_CURVE_SECRETKEY, server_secret, 41);
  zmq_setsockopt(sink, ZMQ_RCVHWM, &kQueue, sizeof kQueue);
  SKERRY_CHECK(zmq_bind(sink, "tcp://127.0.0.1:*") == 0, "a port");
  char address[128];
  std::size_t length = sizeof address;
  zmq_getsockopt(sink, ZMQ_LAST_ENDPOINT, address, &length);
  std::atomic<bool> go = false;
  std::vector<std::thread> givers;
  for (unsigned giver = 0; giver < kGivers; ++giver) {
    givers.emplace_back([&, giver] {
      void* own = zmq_ctx_new();
      void* socket = bare_socket(own, ZMQ_PUSH, server_public);
      zmq_connect(socket, address);
      zmq_send(socket, "", 0, 0);
      go.wait(false);
      for (std::size_t i = giver; i < kChunks; i += kGivers) {
        zmq_send(socket, library.chunks[i].data(), library.chunks[i].size(), 0);
      }
      zmq_close(socket);
      zmq_ctx_term(own);
    });
  }
  for (unsigned i = 0; i < kGivers; ++i) zmq_recv(sink, nullptr, 0, 0);
  const Watch watch;
  go = true;
  go.notify_all();
  std::deque<std::string> kept;
  for (std::size_t i = 0; i < kChunks; ++i) {
    zmq_msg_t message;
    zmq_msg_init(&message);
    SKERRY_CHECK(zmq_msg_recv(&message, sink, 0) >= 0, "a message");
    const std::string_view bytes(static_cast<const char*>(zmq_msg_data(&message)),
                                 zmq_msg_size(&message));
    SKERRY_CHECK(library.by_hash.contains(blake2b(bytes)), "the right bytes");
    kept.emplace_back(bytes);
    zmq_msg_close(&message);
  }
  const Figures figures = watch.stop();
  for (std::thread& giver : givers) giver.join();
  zmq_close(sink);
  zmq_ctx_term(context);
  return figures;
}

// ---- The exchange ----

// One end: an exchange, where its chunks lie, and how a message is sent (false:
// the queue is full).
class End {
 public:
  using SendOne = std::function<bool(const PeerId&, const std::string&)>;
  End(std::uint64_t incarnation, ChunkStore& chunk_store, SendOne send)
      : exchange({.incarnation = incarnation}), chunk_store_(chunk_store), send_(std::move(send)) {}

  void received(const PeerId& peer, const std::string& bytes) {
    exchange.received(peer, value_of(protocol::parse_blob_message(bytes)), clock.now());
    carry_out();
  }
  void carry_out() {
    while (true) {
      Effects effects = exchange.take_effects();
      for (Send& send : effects.sends)
        unsent_.emplace_back(send.peer, send.message.SerializeAsString());
      SKERRY_CHECK(effects.failed.empty() && effects.misbehaved.empty(), "the exchange works");
      is_done = is_done || !effects.completed.empty();
      flush();
      if (effects.jobs.empty()) return;
      for (const Job& job : effects.jobs)
        exchange.answered(perform(chunk_store_, job), clock.now());
    }
  }
  Duration turn() {
    exchange.tick(clock.now());
    carry_out();
    Duration wait = unsent_.empty() ? std::chrono::milliseconds(20) : std::chrono::milliseconds(1);
    if (const auto wake = exchange.wake_at())
      wait = std::clamp(*wake - clock.now().boot, Duration{}, wait);
    return wait;
  }

  SystemClock clock;
  Exchange exchange;
  bool is_done = false;

 private:
  void flush() {
    while (!unsent_.empty() && send_(unsent_.front().first, unsent_.front().second))
      unsent_.pop_front();
  }

  ChunkStore& chunk_store_;
  SendOne send_;
  std::deque<std::pair<PeerId, std::string>> unsent_;
};

void give(const Library& library, unsigned number, const protocol::Identity& identity,
          const protocol::ClientOptions& options, const std::atomic<bool>& stop) {
  const PeerId receiver("receiver");
  auto transport = value_of(protocol::make_zmq_client(identity, options));
  SourceChunkStore chunk_store(library);
  End end(number + 1, chunk_store, [&](const PeerId&, const std::string& bytes) {
    const Result<void> sent = transport->send(Endpoint::kBlob, bytes);
    return sent || sent.error().code != ErrorCode::kExhausted;
  });
  transport->dial(Endpoint::kBlob);
  while (!stop) {
    (void)value_of(transport->poll(end.turn(), {}, [&](protocol::ClientEvent event) {
      if (std::holds_alternative<protocol::Opened>(event)) {
        end.exchange.connected(receiver, end.clock.now());
      } else if (auto* got = std::get_if<protocol::Received>(&event)) {
        end.received(receiver, got->bytes);
      }
    }));
  }
}

Figures measure_exchange(const Library& library, ChunkStore& chunk_store) {
  const protocol::Identity identity = protocol::Identity::generate();
  auto transport = value_of(protocol::make_zmq_server(identity, {}));
  std::atomic<bool> stop = false;
  std::vector<std::thread> givers;
  for (unsigned i = 0; i < kGivers; ++i) {
    const protocol::Identity giver = protocol::Identity::generate();
    transport->allow(giver.x25519_key());
    givers.emplace_back([&, giver, i] {
      give(library, i, giver, {transport->endpoints(), identity.ed25519_key()}, stop);
    });
  }
  std::map<PeerId, protocol::Connection> connections;
  End end(100, chunk_store, [&](const PeerId& peer, const std::string& bytes) {
    const Result<void> sent = transport->send(connections.at(peer), bytes);
    return sent || sent.error().code != ErrorCode::kExhausted;
  });
  const auto poll = [&] {
    (void)value_of(transport->poll(end.turn(), {}, [&](protocol::ServerEvent event) {
      auto* got = std::get_if<protocol::Incoming>(&event);
      if (got == nullptr) return;
      const PeerId peer(got->public_key);
      if (connections.emplace(peer, got->connection).second)
        end.exchange.connected(peer, end.clock.now());
      end.received(peer, got->bytes);
    }));
  };
  while (connections.size() < kGivers) poll();
  const Watch watch;
  end.exchange.fetch(
      {.object = library.object.name, .manifest_bytes = library.object.encoded.size()},
      end.clock.now());
  while (!end.is_done) poll();
  const Figures figures = watch.stop();
  stop = true;
  for (std::thread& giver : givers) giver.join();
  return figures;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void run() {
  const Library library = make_library();
  std::vector<double> bare, ours, ratio, bare_cpu, our_cpu, disk;
  for (int round = 0; round < kRounds; ++round) {
    const Figures plain = measure_bare(library);
    MemoryChunkStore memory;
    const Figures exchanged = measure_exchange(library, memory);
    bare.push_back(plain.bytes_per_second);
    bare_cpu.push_back(plain.cpu_seconds_per_gib);
    ours.push_back(exchanged.bytes_per_second);
    our_cpu.push_back(exchanged.cpu_seconds_per_gib);
    ratio.push_back(ours.back() / bare.back());
    std::printf("bare %.0f MB/s, %.2f s of CPU a GiB; exchange %.0f MB/s, %.2f s; ratio %.2f\n",
                bare.back() / 1e6, bare_cpu.back(), ours.back() / 1e6, our_cpu.back(),
                ratio.back());
    std::fflush(stdout);
  }
  for (int round = 0; round < 3; ++round) {
    TempFolder folder;
    FolderChunkStore chunk_store(folder.path());
    disk.push_back(measure_exchange(library, chunk_store).bytes_per_second);
    std::printf("exchange into a file, synced: %.0f MB/s\n", disk.back() / 1e6);
  }
  std::printf(
      "{\"bytes_per_second\": %.0f, \"ratio_to_bare\": %.3f, \"cpu_seconds_per_gib\": %.2f, "
      "\"bare_bytes_per_second\": %.0f, \"bare_cpu_seconds_per_gib\": %.2f, "
      "\"to_disk_bytes_per_second\": "
      "%.0f}\n",
      median(ours), median(ratio), median(our_cpu), median(bare), median(bare_cpu), median(disk));
}

}  // namespace
}  // namespace skerry::exchange

int main() { skerry::exchange::run(); }
