// SPDX-License-Identifier: Apache-2.0
// The coordinator's core with its I/O. It feeds the core events of the
// transport and the disk workers, and carries out its effects in the order of
// perform.h. It decides nothing itself. It never waits: loop.h waits for it in
// the program, a virtual clock in a simulation.
//
// ON FAILURE: after a failed write or fsync failure() is set, and the process
// must end; the next start goes on from what is durable. A full disk is no
// failure: writes and their answers wait for room.
// THREADS: one. Jobs of the workers run where the workers run them.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>

#include "base/clock.h"
#include "base/event_queue.h"
#include "base/result.h"
#include "base/worker.h"
#include "coordinator/core/core.h"
#include "coordinator/core/perform.h"
#include "coordinator/host/blob_traffic.h"
#include "coordinator/host/fact_publisher.h"
#include "coordinator/host/request_rate.h"
#include "protocol/identity.h"
#include "protocol/transport.h"
#include "storage/files.h"
#include "storage/object_store.h"
#include "storage/store.h"

namespace skerry::coordinator {

// Where the core's state lies in the Store, apart from the objects' keys.
inline constexpr char kStatePrefix[] = "coordinator/";
Result<std::vector<KeyValue>> read_state(const storage::Store& store);
// Adds a whole state to a store that holds none.
Result<void> write_state(storage::Store& store, std::vector<KeyValue> state);
// kCorrupt, where the store knows nothing of an object that the state needs.
// One that it knows in part is damaged, which keeps no coordinator from
// starting.
Result<void> check_objects(const Core& core, const storage::ObjectStore& objects);

// What the host runs on. LIFETIME: all of it outlives the host.
struct Surroundings {
  protocol::ServerTransport& transport;
  storage::Store& store;
  storage::ObjectStore& objects;
  const protocol::Signer& identity;
  const Authority& authority;  // of `identity`
  const Clock& clock;
  Rng& rng;
  Worker& state_disk;   // the core's batches
  Worker& object_disk;  // all else
  std::string folder;   // whose file system's free space counts
  storage::Files& files = storage::posix_files();
};

struct HostOptions {
  Config config;
  std::uint64_t upload_limit = 0;  // of chunks, bytes a second; 0: none
  FirstAdmin first_admin;          // rostered where nobody is
  // Called before the first start is durable: where it fails, nothing has
  // happened.
  std::function<Result<void>(const FirstStart&)> keep_first_start;
  std::function<void()> alive;  // about once a second, from a loop that turns
  std::function<void(const std::string& status)> report;  // every few seconds
  FactPublisher::Options gossip = {};
  Duration facts_every = std::chrono::seconds(1);  // gossip is told of what has changed
  // Told of each step of the core, before its effects are carried out, and of
  // each message before it leaves; none: nobody looks on. `event`: null for a
  // start.
  std::function<void(const Core& core, const Event* event, const Effects& effects)> stepped = {};
  std::function<void(const Send& message)> sending = {};
};

class Host final : private Sink {
 public:
  // Loads, checks (S16) and starts the core; nothing is served before begin().
  static Result<std::unique_ptr<Host>> make(const Surroundings& surroundings, HostOptions options);
  // Finishes what the workers were given.
  ~Host() override;

  const std::optional<FirstStart>& first_start() const { return first_start_; }
  const Core& core() const { return *core_; }
  const std::optional<Error>& failure() const { return fatal_; }
  const gossip::Table& records() const { return publisher_->table(); }

  // The caller's loop comes round from now on. Once.
  void begin();
  // Does what is due. RETURNS: how long nothing else is; the caller wakes it by
  // then.
  Duration wait();
  // The loop goes on after it has waited. REQUIRES: called before completed
  // jobs; on_transport() does it itself.
  void woken();
  void on_transport(protocol::ServerEvent event);
  // What is done about once a second or less often. REQUIRES: called once
  // between two wait().
  void every_now_and_then();

  // Drops every message from now on. What was promised to be durable becomes
  // so, and its answers leave.
  void stop();
  bool is_writing() const { return !unwritten_.empty(); }
  // REQUIRES: stop() was called and nothing is being written, or there is a
  // failure(). RETURNS: the failure.
  Result<void> finish();

 private:
  struct Unwritten {
    std::uint64_t number = 0;
    std::vector<storage::Write> writes;
    bool makes_room = false;
  };
  Host(const Surroundings& surroundings, HostOptions options);
  Result<void> start();
  Result<void> write_now(Effects effects);

  bool is_heard(const protocol::Incoming& message);
  void control(const protocol::Incoming& message);
  void enrol(const protocol::Incoming& message);
  bool is_stalled() const;
  void feed(Event event) { events_.feed(std::move(event)); }
  // Sink
  void write(Batch batch) override;
  void send(Send message) override;
  void change_roster(const std::vector<RosterChange>& changes) override;
  void cancel(const Hash& object) override { blob_->cancel(object); }
  void fetch(const Fetch& order) override { blob_->fetch(order); }
  void drop(const Drop& order) override { blob_->drop(order.manifest); }
  void verify(const Hash& object) override { blob_->verify(object); }
  void disconnect(const ConnectionId& connection) override;
  void read(const Hash& object) override;
  void seek(const RunId& run) override;
  void wake_at(Duration boot) override { next_tick_ = boot; }

  void write_next();
  void wrote();
  // Tells the core whether batches find room, if that changed.
  void look_for_room();
  void add_peers(Send& message) const;
  void tell_facts(Duration now);
  void hear_records();
  void seek_lost();
  void keep_records();

  Surroundings surroundings_;
  HostOptions options_;
  std::unique_ptr<Core> core_;
  std::optional<FirstStart> first_start_;
  std::unordered_set<std::string> allowed_;
  std::unordered_set<std::string> admins_;  // of these
  RequestRate rate_;
  Performer performer_{*this};
  EventQueue<Event> events_;
  std::deque<Unwritten> unwritten_;  // the first one is at the disk, or waits for room on it
  std::optional<Duration> next_write_;
  bool lacks_room_ = false;
  bool is_stopping_ = false;
  std::optional<Error> fatal_;
  Duration next_tick_{};
  Duration next_alive_{};
  Duration next_report_{};
  Duration next_cleaning_{};
  struct Facts {
    std::uint64_t batch = 0;
    std::vector<RunFacts> runs;
    std::set<RunId> deleted;
    std::vector<NodeId> revoked;
  };
  std::optional<Facts> facts_;                    // seen, told once their batch is durable
  std::uint64_t told_batch_ = ~std::uint64_t{0};  // none yet
  Duration next_facts_{};
  Duration next_keeping_{};
  std::uint64_t kept_incarnation_ = 0;  // that records were last kept with
  Duration next_seeking_{};
  Duration awake_by_{};  // when the loop should have come round at the latest
  std::unique_ptr<FactPublisher> publisher_;
  std::unique_ptr<BlobTraffic> blob_;
};

}  // namespace skerry::coordinator
