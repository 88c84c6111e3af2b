// SPDX-License-Identifier: Apache-2.0
// A daemon's host in a simulation: its core, its identity and disk, its control
// connection, its engines and the fetching of objects. A name stays for ever; a
// node whose disk is lost enrols anew under another key.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "base/event_queue.h"
#include "daemon/core/core.h"
#include "daemon/core/perform.h"
#include "daemon/core/state_writes.h"
#include "tests/simulation/authority.h"
#include "tests/simulation/coordinator_host.h"
#include "tests/simulation/fake_engine.h"
#include "tests/simulation/inbox.h"
#include "tests/simulation/world.h"

namespace skerry::simulation {

class DaemonGossip;

class DaemonHost final : public NetworkClient,
                         public BlobSource,
                         public Believer,
                         private daemon::Sink {
 public:
  struct Settings {
    std::string name;
    std::string host;  // machine
    std::uint32_t slots = 1;
    Duration step_time = milliseconds(100);
    Duration drain_limit = seconds(20);
    double drift = 0;
    bool listens = true;             // false: behind NAT, other nodes cannot dial it
    DaemonHost* original = nullptr;  // of whose disk this one's is a copy
  };
  enum class Death {
    kKilled,    // SIGKILL: the system closes its connections
    kVanished,  // the machine is gone: nobody is told
  };

  DaemonHost(World& world, const CoordinatorHost& coordinator, Settings settings);
  ~DaemonHost() override;

  // With what the disk holds; enrols first where it holds no certificate, by
  // this token.
  void start(const pb::TokenCreated& token);
  // Where it is not enrolled yet: by this token from now on.
  void join_by(const pb::TokenCreated& token) { token_ = token; }
  void kill(Death death);
  // REQUIRES: !is_up().
  void wipe_disk();
  // REQUIRES: !is_up(). Its saved state can be read no more; found out at the
  // next start (S16).
  void damage_state();
  // REQUIRES: !is_up(). The same key and the same disk as the other, as a
  // folder that was copied.
  void copy_disk(const DaemonHost& other);
  void pause(Duration length);
  void drain();
  bool is_up() const { return life_up_; }
  bool is_paused() const { return inbox_.is_closed(); }
  bool has_failed() const { return failed_; }  // it ended by itself and refuses to run
  void clear_failure() { failed_ = false; }
  // An engine of this daemon dies or stops answering. False where none runs.
  bool break_engine(bool hangs, bool for_memory);
  // Bytes of one stored checkpoint are lost; found out when it is needed. False
  // where there is none.
  bool lose_object();
  bool lose_object(const Hash& manifest);

  DiskWeather& disk() { return disk_; }
  const std::string& name() const { return settings_.name; }
  const Settings& settings() const { return settings_; }
  const NodeId& id() const { return identity_.id; }
  const Identity& identity() const { return identity_; }
  const daemon::Core* core() const { return core_.get(); }
  DaemonGossip* gossip() const { return gossip_.get(); }  // none: it is down, or nobody gossips
  const pb::Certificate& certificate() const { return certificate_; }
  bool has_stored(const Hash& manifest) const {
    return objects_.contains(manifest);
  }  // perhaps damaged since
  bool is_enrolled() const { return enrolled_; }
  std::uint64_t life() const { return life_; }
  std::uint64_t engine_starts() const { return engine_starts_; }
  // Says something in this node's name, as a broken or hostile daemon might.
  void forge(const pb::ControlRequest& request);
  const std::optional<pb::Commit>& last_commit() const { return last_commit_; }
  // Once, as its next commit leaves.
  void when_it_commits(std::function<void(const pb::Commit&)> action) {
    at_commit_ = std::move(action);
  }
  std::uint64_t snapshots_stored() const { return snapshots_stored_; }
  void set_wall_offset(std::int64_t ms) { wall_offset_ms_ = ms; }

  // NetworkClient
  void opened(Endpoint endpoint) override;
  void lost(Endpoint endpoint) override;
  void refused(Endpoint endpoint) override;
  void received(Endpoint endpoint, const std::string& bytes) override;
  // BlobSource
  Answer asked_for(const Hash& manifest) const override;
  void found_missing(const Hash& manifest) override;
  double flips() const override { return disk_.flips; }
  // Believer
  bool believes(const ExpertId& expert, Epoch epoch, std::uint64_t incarnation) const override;

 private:
  struct StoredSnapshot {
    daemon::StoreSnapshot order;
    Training training;
  };

  Now now() const;
  Duration until(Duration boot) const;
  void new_identity();
  void run_core();
  void start_gossip(const daemon::CoreConfig& config);
  void look_around(unsigned looks);
  void keep_records(bool is_due);
  void enrol();
  void feed(daemon::Event event) { events_.feed(std::move(event)); }
  void step(const daemon::Event& event);
  // daemon::Sink
  void log(const daemon::LogEntry& entry) override;
  void write(const daemon::Write& write) override;
  void send(const pb::ControlRequest& request) override;
  void cancel(const Hash& object) override;
  void fetch(const daemon::FetchObject& order) override;
  void stop(const daemon::StopEngine& order) override;
  void plan(const daemon::PlanRound& order) override;
  void store(const daemon::StoreSnapshot& order) override;
  void start(const daemon::StartEngine& order) override;
  void drop(const daemon::DropObject& order) override;
  void collect_log(std::uint64_t request) override;
  void wake_at(std::optional<Duration> boot) override;
  void exit(int code) override;

  void start_write(const daemon::Write& write);
  void write_next();
  void save(const daemon::Write& write);
  void wait_for_room();
  bool can_be_had(const Hash& manifest) const;
  bool has_peer_with(const Hash& manifest) const;
  std::optional<daemon::CheckpointFacts> facts_of(const Hash& manifest) const;
  bool file_fails();
  void finish_fetch(const Hash& manifest, daemon::ObjectKind kind);
  void keep_snapshot(const daemon::StoreSnapshot& order, const Training& training);
  FakeEngine* engine(std::uint32_t slot, std::uint64_t number);
  void sweep_engines();
  void end_process(Death death);

  World& world_;
  const CoordinatorHost& coordinator_;
  Settings settings_;
  Dice dice_;
  Identity identity_;
  std::uint32_t disks_ = 0;  // how many this name has had
  DiskWeather disk_;

  // On disk.
  bool enrolled_ = false;
  pb::Certificate certificate_;
  std::string records_;  // gossip's
  std::string state_;
  std::map<Hash, daemon::ObjectKind> objects_;
  std::map<Hash, daemon::ObjectKind> partial_;  // that have come in part
  std::set<Hash> damaged_;
  bool state_damaged_ = false;

  // Of this process.
  std::uint64_t incarnation_ = 0;
  bool life_up_ = false;
  bool failed_ = false;
  std::uint64_t life_ = 0;
  pb::TokenCreated token_;
  std::unique_ptr<daemon::Core> core_;
  std::unique_ptr<DaemonGossip> gossip_;
  Inbox inbox_;  // closed while it stands still
  EventQueue<daemon::Event> events_;
  std::deque<daemon::Write> writes_;
  daemon::StateWrites state_writes_;
  std::uint64_t saved_ticket_ = 0;
  bool writing_ = false;
  std::map<std::uint32_t, std::unique_ptr<FakeEngine>> engines_;
  std::vector<std::unique_ptr<FakeEngine>> ended_engines_;
  std::map<std::pair<std::uint32_t, std::uint64_t>, Training>
      memories_;  // snapshots that wait to be stored
  std::map<Hash, std::uint64_t> transfers_;
  std::map<Hash, daemon::ObjectKind> receiving_;  // of them, those whose chunks are on their way
  std::uint64_t next_transfer_ = 0;
  std::uint64_t wake_ = 0;
  std::uint64_t kept_incarnation_ = 0;  // that gossip's records were last kept with
  std::uint64_t engine_starts_ = 0;
  std::uint64_t snapshots_stored_ = 0;
  std::int64_t wall_offset_ms_ = 0;
  std::optional<pb::Commit> last_commit_;
  std::function<void(const pb::Commit&)> at_commit_;
};

}  // namespace skerry::simulation
