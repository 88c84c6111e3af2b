// SPDX-License-Identifier: Apache-2.0
// Several exchanges joined by a wire that serialises, loses, doubles, delays
// and reorders, on a virtual clock, from a seed.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <set>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/temp_folder.h"
#include "exchange/chunk_store.h"
#include "exchange/exchange.h"
#include "protocol/validate.h"
#include "storage/testing/faulty_store.h"
#include "storage/testing/memory_store.h"
#include "storage/testing/testing.h"

namespace skerry::exchange {

using storage::value_of;

// A checkpoint of many small chunks.
inline storage::Safetensors small_snapshot(std::uint64_t seed, unsigned tensors = 40) {
  std::vector<std::string> data;
  std::vector<storage::TensorView> views;
  for (unsigned i = 0; i < tensors; ++i) {
    data.push_back(storage::random_bytes(100 + 4 * i, seed * 1000 + i));
    const std::string name = (i % 4 == 0 ? "ema/" : "raw/") + std::to_string(i);
    views.push_back({name, storage::DType::kU8, {data.back().size()}, {}});
  }
  for (unsigned i = 0; i < tensors; ++i) views[i].data = data[i];
  return value_of(storage::Safetensors::parse(value_of(storage::encode_safetensors(views, {}))));
}

// One party: an exchange over an object store whose disk outlives restarts.
struct Party {
  explicit Party(PeerId its_name, Config its_config = {})
      : name(std::move(its_name)), config(its_config) {
    start();
  }

  void start() {
    exchange.reset();
    objects.reset();
    chunk_store.reset();
    store.crash(++config.incarnation);
    objects = value_of(
        storage::ObjectStore::open(store, folder / "files", storage::Checkpoints::kInStore));
    chunk_store = std::make_unique<ObjectChunkStore>(*objects);
    exchange = std::make_unique<Exchange>(config);
  }

  PeerId name;
  Config config;
  TempFolder folder;
  storage::MemoryStore disk;
  storage::FaultyStore store{disk};
  std::unique_ptr<storage::ObjectStore> objects;
  std::unique_ptr<ChunkStore> chunk_store;
  std::unique_ptr<Exchange> exchange;

  // What it said to its host.
  std::vector<Hash> completed;
  std::map<Hash, TransferStats> stats;
  std::vector<Failed> failed;
  std::vector<Misbehaved> misbehaved;
  std::vector<Stalled> stalled;
  std::map<Hash, Progress> progress;
  // What it did.
  std::map<PeerId, unsigned> asked;  // requests sent
  std::vector<Hash> asked_chunks;
  unsigned reads = 0;
  std::map<PeerId, std::uint64_t> sent_bytes;  // of chunks, manifests included

  // Its connection to the world; 0: no limit.
  double up_bytes_per_second = 0;
  double down_bytes_per_second = 0;
  Duration up_busy_until{};
  Duration down_busy_until{};
  bool is_old = false;  // neither says nor hears maps
};

struct WireFaults {
  double loss = 0;
  double duplication = 0;
  Duration delay_most = std::chrono::milliseconds(1);
};

class World {
 public:
  explicit World(std::uint64_t seed = 1)
      : random_(Position{.seed = seed, .purpose = Purpose::kSimulation}) {}

  Party& add(const std::string& name, const Config& config = {}) {
    Config own = config;
    if (own.incarnation == 0) own.incarnation = 1000 * (parties_.size() + 1);
    auto party = std::make_unique<Party>(PeerId(name), own);
    return *parties_.emplace(PeerId(name), std::move(party)).first->second;
  }

  void connect(Party& a, Party& b) {
    ++links_[key(a.name, b.name)];
    open_.insert(key(a.name, b.name));
    a.exchange->connected(b.name, now_);
    b.exchange->connected(a.name, now_);
    drain(a);
    drain(b);
  }

  void disconnect(Party& a, Party& b) {
    if (open_.erase(key(a.name, b.name)) == 0) return;
    a.exchange->disconnected(b.name, now_);
    b.exchange->disconnected(a.name, now_);
    drain(a);
    drain(b);
  }

  // The process ends and a new one starts: memory and unflushed chunks are
  // lost, connections closed.
  void restart(Party& party) {
    for (auto& [name, other] : parties_) {
      if (open_.erase(key(party.name, name)) == 0) continue;
      other->exchange->disconnected(party.name, now_);
      drain(*other);
    }
    ++lives_[party.name];
    party.start();
  }

  void fetch(Party& party, const Hash& object, std::vector<PeerId> from = {},
             std::vector<PeerId> last_resort = {}) {
    party.exchange->fetch(
        {.object = object, .from = std::move(from), .last_resort = std::move(last_resort)}, now_);
    drain(party);
  }

  // Carries out what a call of the party's exchange led to.
  void settle(Party& party) { drain(party); }

  // Until nothing is left to happen, or `enough` holds, or the time is over.
  // True where `enough` holds.
  bool run(const std::function<bool()>& enough, Duration limit = std::chrono::minutes(30)) {
    const Duration end = now_.boot + limit;
    while (!enough()) {
      if (!step(end)) return enough();
    }
    return true;
  }
  void run_all(Duration limit = std::chrono::minutes(30)) {
    (void)run([] { return false; }, limit);
  }

  Now now() const { return now_; }
  Stream& random() { return random_; }
  WireFaults faults;
  // Sees and may change every message but hellos; false drops it.
  std::function<bool(const Party& from, const Party& to, pb::BlobMessage& message)> tamper;

 private:
  struct Event {
    Duration at{};
    std::uint64_t number = 0;
    std::function<void()> happen;
    bool operator<(const Event& other) const {
      return std::tie(at, number) > std::tie(other.at, other.number);
    }
  };

  static std::pair<PeerId, PeerId> key(const PeerId& a, const PeerId& b) {
    return std::minmax(a, b);
  }

  void later(Duration delay, std::function<void()> happen) {
    events_.push({now_.boot + delay, next_event_++, std::move(happen)});
  }

  bool step(Duration end) {
    std::optional<Duration> next;
    if (!events_.empty()) next = events_.top().at;
    for (const auto& [name, party] : parties_) {
      if (const auto wake = party->exchange->wake_at())
        next = next ? std::min(*next, *wake) : *wake;
    }
    if (!next || *next > end) return false;
    now_.boot = std::max(now_.boot, *next);
    if (!events_.empty() && events_.top().at <= now_.boot) {
      const auto happen = events_.top().happen;
      events_.pop();
      happen();
      return true;
    }
    for (const auto& [name, party] : parties_) {
      party->exchange->tick(now_);
      drain(*party);
    }
    return true;
  }

  Duration delay() {
    const auto most = static_cast<std::uint64_t>(faults.delay_most.count());
    return std::chrono::microseconds(10) + Duration(static_cast<std::int64_t>(random_.below(most)));
  }

  void deliver(Party& to, const PeerId& from, const std::string& bytes) {
    const auto message = protocol::parse_blob_message(bytes);
    SKERRY_CHECK(message.has_value(),
                 message.has_value() ? std::string() : message.error().message);
    to.exchange->received(from, *message, now_);
    drain(to);
  }

  void send(Party& from, Send send) {
    const auto to = parties_.find(send.peer);
    if (to == parties_.end() || !open_.contains(key(from.name, send.peer))) return;
    Party& target = *to->second;
    const bool hello = send.message.has_hello();
    if (from.is_old || target.is_old) {
      SKERRY_CHECK(!send.message.has_map() && !send.message.has_map_request(),
                   "a map for an old peer");
      if (hello) send.message.mutable_hello()->set_maps(false);
    }
    if (send.message.has_request()) {
      ++from.asked[send.peer];
      from.asked_chunks.push_back(*Hash::from_raw(send.message.request().hash()));
    }
    from.sent_bytes[send.peer] += send.message.reply().data().size();
    if (!hello && tamper && !tamper(from, target, send.message)) return;
    const std::string bytes = send.message.SerializeAsString();
    const auto link = key(from.name, send.peer);
    for (unsigned copy = 0, copies = hello ? 1 : drawn_copies(); copy < copies; ++copy) {
      later(hello ? Duration(0) : travel(from, target, bytes.size()),
            [this, &target, link, number = links_[link], name = from.name, bytes] {
              if (open_.contains(link) && links_[link] == number) deliver(target, name, bytes);
            });
    }
  }

  // From now: through the sender's line, the world, and the receiver's line,
  // each busy with one message at a time.
  Duration travel(Party& from, Party& to, std::size_t bytes) {
    const auto through = [&](Duration at, Duration& busy_until, double bytes_per_second) {
      if (bytes_per_second == 0) return at;
      const std::chrono::duration<double> takes(static_cast<double>(bytes) / bytes_per_second);
      busy_until = std::max(at, busy_until) + std::chrono::duration_cast<Duration>(takes);
      return busy_until;
    };
    const Duration left = through(now_.boot, from.up_busy_until, from.up_bytes_per_second);
    return through(left + delay(), to.down_busy_until, to.down_bytes_per_second) - now_.boot;
  }

  unsigned drawn_copies() {
    const bool lost = random_.uniform() < faults.loss;
    const bool doubled = random_.uniform() < faults.duplication;
    return (lost ? 0U : 1U) + (doubled ? 1U : 0U);
  }

  void drain(Party& party) {
    Effects effects = party.exchange->take_effects();
    for (Job& job : effects.jobs) {
      party.reads += std::holds_alternative<ReadChunk>(job);
      later(delay(),
            [this, &party, life = lives_[party.name], answer = perform(*party.chunk_store, job)] {
              if (lives_[party.name] != life) return;
              party.exchange->answered(answer, now_);
              drain(party);
            });
    }
    for (Send& each : effects.sends) send(party, std::move(each));
    for (const auto& [object, progress] : effects.progress) party.progress[object] = progress;
    for (const Completed& each : effects.completed) {
      party.completed.push_back(each.object);
      party.stats[each.object] = each.stats;
    }
    party.failed.insert(party.failed.end(), effects.failed.begin(), effects.failed.end());
    party.misbehaved.insert(party.misbehaved.end(), effects.misbehaved.begin(),
                            effects.misbehaved.end());
    party.stalled.insert(party.stalled.end(), effects.stalled.begin(), effects.stalled.end());
  }

  Now now_;
  Stream random_;
  std::map<PeerId, std::unique_ptr<Party>> parties_;
  std::map<PeerId, unsigned> lives_;
  std::map<std::pair<PeerId, PeerId>, unsigned> links_;
  std::set<std::pair<PeerId, PeerId>> open_;
  std::priority_queue<Event> events_;
  std::uint64_t next_event_ = 0;
};

// The checkpoint as a safetensors file, read back from the party's disk.
inline std::string read_back(const Party& party, const Hash& object) {
  const storage::NamedManifest named = value_of(party.objects->manifest(object));
  const storage::Layout layout = value_of(storage::safetensors_layout(named.manifest));
  std::string bytes = layout.prefix;
  for (const storage::Placement& place : layout.placements) {
    bytes += value_of(party.objects->read(object, place.chunk.hash));
  }
  return bytes;
}

inline storage::NamedManifest give(Party& party, const storage::Safetensors& tensors,
                                   Step step = 100) {
  return value_of(party.objects->store_checkpoint(tensors, storage::checkpoint_facts(step)));
}

}  // namespace skerry::exchange
