// SPDX-License-Identifier: Apache-2.0
// The coordinator's host in a simulation: its core, a disk that forgets what
// was not durable, the server side of the network and the fetching of objects.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/event_queue.h"
#include "coordinator/core/core.h"
#include "coordinator/core/perform.h"
#include "tests/simulation/authority.h"
#include "tests/simulation/inbox.h"
#include "tests/simulation/world.h"

namespace skerry::simulation {

class CoordinatorGossip;

class CoordinatorHost final : public NetworkServer, private coordinator::Sink {
 public:
  struct Backup {
    Durable state;
    std::map<Hash, bool> objects;
    std::map<Hash, bool> lost;
  };

  CoordinatorHost(World& world, coordinator::Config config);
  ~CoordinatorHost() override;

  void start();
  // SIGKILL: batches on their way become durable or not, in order; transfers
  // are lost.
  void kill();
  // SIGSTOP and SIGCONT: events wait; the loop's lag is told first, as the host
  // does.
  void pause(Duration length);
  bool is_up() const { return core_ != nullptr; }
  // Of this thread's CPU time in the core's steps, measured from now on.
  void measure() { measures_ = true; }
  std::chrono::nanoseconds core_time() const { return core_time_; }
  bool is_paused() const { return inbox_.is_closed(); }
  std::uint64_t life() const { return life_; }
  CoordinatorGossip* gossip() const {
    return gossip_.get();
  }  // none: it is down, or nobody gossips
  std::int64_t wall_ms() const { return now().unix_ms; }

  Backup backup() const { return {durable_, objects_, lost_}; }
  // REQUIRES: !is_up(). The next start is from the backup, its generation
  // raised; it may be restored again.
  void restore(const Backup& backup);

  // Bytes of one stored object are lost, and it is found out. False where there
  // is none.
  bool damage_object(Dice& dice);
  // What is lost still comes back, as by a person who has it.
  void bring_back_objects();

  DiskWeather& disk() { return disk_; }
  void set_drift(double drift) { drift_ = drift; }
  const coordinator::Core* core() const { return core_.get(); }
  const Durable& durable() const { return durable_; }
  const std::optional<coordinator::FirstStart>& first_start() const { return first_start_; }
  const Identity& admin() const { return admin_; }
  // Whole, every hash right.
  bool has_object(const Hash& manifest) const {
    return objects_.contains(manifest) && !broken_.contains(manifest);
  }
  double flips() const { return disk_.flips; }
  void set_wall_offset(std::int64_t ms) { wall_offset_ms_ = ms; }
  // As the host finds it in its regular look.
  void set_free_bytes(std::uint64_t bytes);
  // For the client side of blob.
  bool may_serve(const NodeId& node, const Hash& manifest) const;

  // NetworkServer
  bool admits(Endpoint endpoint, const std::string& key) const override;
  void received(const ConnectionId& connection, Endpoint endpoint, const std::string& key,
                const std::string& bytes) override;
  void closed(const ConnectionId& connection) override;

 private:
  class CountedRng final : public coordinator::Rng {
   public:
    explicit CountedRng(Dice dice) : dice_(std::move(dice)) {}
    void fill(std::span<unsigned char> out) override;

   private:
    Dice dice_;
  };
  struct Peer {
    std::string key;
    std::optional<pb::EnrolRequest> enrol;
  };

  Now now() const;
  void start_gossip();
  void look_around(unsigned looks);
  void feed(coordinator::Event event) { events_.feed(std::move(event)); }
  void step(const coordinator::Event& event);
  void tell_stepped(const coordinator::Event* event, const coordinator::Effects& effects);
  // coordinator::Sink
  void write(coordinator::Batch batch) override;
  void send(coordinator::Send message) override;
  void change_roster(const std::vector<coordinator::RosterChange>& changes) override;
  void cancel(const Hash& object) override { transfers_.erase(object); }
  void fetch(const coordinator::Fetch& order) override;
  void drop(const coordinator::Drop& order) override;
  void verify(const Hash&) override {}  // an administrator asks it, and nobody here does
  void disconnect(const coordinator::ConnectionId& connection) override {
    world_.network.disconnect(connection);
  }
  void read(const Hash&) override {}  // of a run that is adopted, likewise
  void seek(const RunId&) override {}
  void wake_at(Duration boot) override;

  void write_next();
  void became_durable(const coordinator::Batch& batch);
  void crash_disk();
  void fetched(const Hash& manifest, bool checkpoint);
  coordinator::ObjectStored stored_event(const Hash& manifest) const;

  World& world_;
  coordinator::Config config_;
  SimulatedAuthority authority_;
  Dice dice_;
  Identity admin_ = identity_of("admin");
  double drift_ = 0;
  std::int64_t wall_offset_ms_ = 0;

  // On disk.
  Durable durable_;
  std::map<Hash, bool> objects_;  // → is a checkpoint
  std::map<Hash, bool> lost_;     // damaged, and known to be
  std::set<Hash> broken_;         // of them: visible, but not whole; only planted bugs leave such
  std::uint64_t free_bytes_ = 1ULL << 40;
  std::string records_;  // gossip's

  // Of this process.
  std::uint64_t life_ = 0;
  std::unique_ptr<CountedRng> rng_;
  std::unique_ptr<coordinator::Core> core_;
  std::vector<coordinator::ExpertView> experts_;  // after the last step
  std::unique_ptr<CoordinatorGossip> gossip_;
  DiskWeather disk_;
  Duration paused_at_{};
  Inbox inbox_;  // closed while it stands still
  coordinator::Performer performer_{*this};
  EventQueue<coordinator::Event> events_;
  std::deque<coordinator::Batch> batches_;
  bool writing_ = false;
  std::map<ConnectionId, Peer> peers_;
  std::set<std::string> allowed_;
  std::map<Hash, std::uint64_t> transfers_;
  std::uint64_t next_transfer_ = 0;
  std::uint64_t tick_ = 0;
  std::uint64_t kept_incarnation_ = 0;  // that gossip's records were last kept with
  bool measures_ = false;
  std::chrono::nanoseconds core_time_{};
  std::optional<coordinator::FirstStart> first_start_;
};

}  // namespace skerry::simulation
