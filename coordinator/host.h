// The coordinator's shell: one thread that polls the transport and feeds the core, one worker for the core's batches, one
// for objects. It adds no decision of its own: perform.h carries out what the core says, and its order.
//
// Failure rule: a failed write or fsync ends run() with its error, and then the process; the next start goes on from what
// is durable. A disk that is seen to be full is none: what was to be written waits for room, and its answers with it.
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
#include "coordinator/blob_traffic.h"
#include "coordinator/core.h"
#include "coordinator/herald.h"
#include "coordinator/perform.h"
#include "coordinator/request_rate.h"
#include "protocol/identity.h"
#include "protocol/transport.h"
#include "storage/object_store.h"
#include "storage/store.h"

namespace skerry::coordinator {

// Where the core's state lies in the Store, apart from the objects' keys.
inline constexpr char kStatePrefix[] = "coordinator/";
Result<std::vector<KeyValue>> read_state(const storage::Store& store);
// kCorrupt, where the store knows nothing of an object that the state needs. One that it knows in part is damaged, which keeps
// no coordinator from starting.
Result<void> check_objects(const Core& core, const storage::ObjectStore& objects);

// What the host runs on; everything outlives it.
struct Surroundings {
  protocol::ServerTransport& transport;
  storage::Store& store;
  storage::ObjectStore& objects;
  const protocol::Identity& identity;
  const Clock& clock;
  std::string folder;  // whose file system's free space counts
};

struct HostOptions {
  Config config;
  std::uint64_t upload_limit = 0;  // of chunks, bytes a second; 0: none
  FirstAdmin first_admin;          // rostered where nobody is
  // Called before the first start is durable: where it fails, nothing has happened.
  std::function<Result<void>(const FirstStart&)> keep_first_start;
  std::function<void()> alive;                            // about once a second, from a loop that turns
  std::function<void(const std::string& status)> report;  // every few seconds
};

class Host final : private Sink {
 public:
  // Loads, checks (S16) and starts the core; nothing is served before run().
  static Result<std::unique_ptr<Host>> make(const Surroundings& surroundings, HostOptions options);
  ~Host() override;

  const std::optional<FirstStart>& first_start() const { return first_start_; }
  // Until `stop` can be read. Finishes the batches under way.
  Result<void> run(int stop);

 private:
  struct Unwritten {
    std::uint64_t number = 0;
    std::vector<storage::Write> writes;
    bool makes_room = false;
  };
  Host(const Surroundings& surroundings, HostOptions options, Completions completions);
  Result<void> start();
  Result<void> finish_batches();
  Result<void> write_now(Effects effects);

  void handle(protocol::ServerEvent event);
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
  void add_peers(Send& message) const;
  void tell_facts(Duration now);
  void hear_records();
  void seek_lost();
  void keep_records();
  void watch_lag();
  void every_now_and_then();
  Duration wait();

  Surroundings surroundings_;
  HostOptions options_;
  Completions completions_;
  std::unique_ptr<Rng> rng_;
  std::unique_ptr<Authority> authority_;
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
    std::set<std::string> deleted;
    std::vector<NodeId> revoked;
  };
  std::optional<Facts> facts_;                    // seen, told once their batch is durable
  std::uint64_t told_batch_ = ~std::uint64_t{0};  // none yet
  Duration next_facts_{};
  Duration next_keeping_{};
  std::uint64_t kept_incarnation_ = 0;  // that records were last kept with
  Duration next_seeking_{};
  Duration awake_by_{};  // when the loop should have come round at the latest
  std::unique_ptr<Worker> state_worker_;
  std::unique_ptr<Worker> object_worker_;
  std::unique_ptr<Herald> herald_;
  std::unique_ptr<BlobTraffic> blob_;
};

}  // namespace skerry::coordinator
