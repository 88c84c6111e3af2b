// SPDX-License-Identifier: Apache-2.0
// A daemon's machine in a simulation: its disk and identity, and the real host
// on it. The host's exchange, object store and gossip are real, too. A node
// whose disk is lost enrols anew under another key; its name stays.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "daemon/host/host.h"
#include "tests/simulation/authority.h"
#include "tests/simulation/engines.h"
#include "tests/simulation/gossip_ground.h"
#include "tests/simulation/inbox.h"
#include "tests/simulation/machine.h"
#include "tests/simulation/transports.h"
#include "tests/simulation/world.h"

namespace skerry::simulation {

class DaemonMachine final : public Keeper, public Believer {
 public:
  struct Settings {
    std::string name;
    std::string host;  // label of the machine
    std::uint32_t slots = 1;
    Duration step_time = milliseconds(100);
    Duration engine_start_min = milliseconds(300);
    Duration engine_start_max = milliseconds(900);
    bool exact_engines = false;  // as FakeEngine::Settings has it
    double gain = 0.85;          // as Engines::Settings has it
    Duration store_time{};       // of a snapshot, beside the disk's pace
    Duration drain_limit = seconds(20);
    double drift = 0;
    bool listens = true;         // false: behind NAT, other nodes cannot dial it
    std::string device = "cpu";  // of each slot
    std::uint64_t memory_bytes = std::uint64_t{1} << 30;
    double price = 0;                   // dollars an hour; 0: unknown
    Duration idle_limit{};              // without work, before --idle-exec; 0: it has none
    DaemonMachine* original = nullptr;  // of whose disk this one's is a copy
  };
  enum class Death {
    kKilled,    // SIGKILL: the system closes its connections
    kVanished,  // the machine is gone: nobody is told, and what was not synced may be lost
  };

  DaemonMachine(World& world, Settings settings);
  ~DaemonMachine() override;

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
  void copy_disk(const DaemonMachine& other);
  void pause(Duration length);
  void drain();
  // Of the platform; without `left`, advice.
  void notice(std::optional<Duration> left, const std::string& what);
  bool is_up() const { return client_ != nullptr; }
  bool is_paused() const { return inbox_.is_closed(); }
  bool has_failed() const { return failed_; }  // it ended by itself and refuses to run
  void clear_failure() { failed_ = false; }
  // An engine of this daemon dies or stops answering. False where none runs.
  bool break_engine(bool hangs, bool for_memory) {
    return engines_ && engines_->break_one(hangs, for_memory);
  }
  // A card of an engine that has several is gone until bring_back_cards().
  // False where none has.
  bool lose_card(Dice& dice);
  // RETURNS: whether one was lost: its daemon offers it again after a start.
  bool bring_back_cards();
  // Bytes of one stored checkpoint are lost; found out when it is needed. False
  // where there is none.
  bool lose_object();
  bool lose_object(const Hash& manifest);
  // A write of its state fails, or an operation on a file; the process ends by
  // it.
  void fail_sync(Dice& dice);
  void fail_file(Dice& dice);

  Disk& disk() { return disk_; }
  MachineClock& clock() { return clock_; }
  Now now() const { return clock_.now(); }
  const std::string& name() const { return settings_.name; }
  const Settings& settings() const { return settings_; }
  const NodeId& id() const { return identity_.id; }
  const Identity& identity() const { return identity_; }
  // None: it is down, or not enrolled yet.
  const daemon::Core* core() const { return host_ ? &host_->core() : nullptr; }
  // What gossip has told it; none: it is down, or nobody gossips.
  const gossip::Table* records() const {
    return host_ && world_.gossip != nullptr ? &host_->peer_gossip()->table() : nullptr;
  }
  bool hears_coordinator() const { return client_ && client_->is_open(Endpoint::kBlob); }
  const pb::Certificate& certificate() const { return certificate_; }
  bool is_enrolled() const { return enrolled_; }
  std::uint64_t life() const { return life_; }
  std::uint64_t engine_starts() const { return engine_starts_; }
  // RETURNS: the engine in this slot, if it trains.
  const FakeEngine* training_in(std::uint32_t slot) const {
    return engines_ ? engines_->training_in(slot) : nullptr;
  }
  // Says something in this node's name, as a broken or hostile daemon might.
  void forge(const pb::ControlRequest& request);
  const std::optional<pb::Commit>& last_commit() const { return last_commit_; }
  // Once, as its next commit leaves.
  void when_it_commits(std::function<void(const pb::Commit&)> action) {
    at_commit_ = std::move(action);
  }
  std::uint64_t snapshots_stored() const { return snapshots_stored_; }

  // Keeper
  bool has_stored(const Hash& manifest) const override {
    return objects_ && objects_->has(manifest);
  }
  // Believer
  bool believes(const ExpertId& expert, Epoch epoch, std::uint64_t incarnation) const override;

 private:
  void new_identity();
  void launch();
  void came(protocol::ClientEvent event);
  void enrols(const protocol::ClientEvent& event);
  void enrol();
  template <class Work>
  void run(const Work& work);
  void turn();
  void looked(const daemon::Event& event, const daemon::Effects& effects);
  void check_event(const daemon::Event& event);
  void check_snapshot(const daemon::SnapshotStored& event);
  void check_found(const storage::ObjectInfo& info);
  Result<Training> add_to_library(const Hash& checkpoint);
  void ended(Death death);

  World& world_;
  Settings settings_;
  Dice dice_;
  MachineClock clock_;
  Identity identity_;
  std::unique_ptr<SimulatedSigner> signer_;
  std::uint32_t disks_ = 0;  // how many this name has had
  Disk disk_;
  bool enrolled_ = false;
  pb::Certificate certificate_;
  bool state_damaged_ = false;
  std::set<Hash> damaged_;  // objects that its disk lost bytes of, or seemed to
  std::set<std::string> lost_cards_;

  // Of this process, in the order in which they are made.
  std::uint64_t life_ = 0;
  bool failed_ = false;
  std::uint64_t incarnation_ = 0;
  pb::TokenCreated token_;
  std::unique_ptr<ClientEnd> client_;
  std::unique_ptr<storage::ObjectStore> objects_;
  std::unique_ptr<Engines> engines_;
  std::unique_ptr<TimedWorker> worker_;
  std::unique_ptr<protocol::PeerLinks> links_;
  MeshEnd* end_ = nullptr;  // of these; none: nobody gossips
  bool hears_peers_ = false;
  bool is_spoken_to_ = false;  // by the coordinator, and its core has not heard of it
  std::unique_ptr<daemon::PeerParts> peers_;
  std::unique_ptr<daemon::CardCounter> counter_;
  std::unique_ptr<daemon::IdleExec> idle_;  // none: it has no --idle-exec
  std::unique_ptr<daemon::Host> host_;
  std::unique_ptr<Alarm> alarm_;
  Inbox inbox_;                                  // closed while it stands still
  std::map<std::uint64_t, std::string> writes_;  // by ticket
  std::uint64_t persisted_ = 0;
  std::map<std::uint64_t, daemon::StoreSnapshot> storing_;  // by engine
  std::set<std::uint64_t> exited_;                          // engines
  std::uint64_t engine_starts_ = 0;
  std::uint64_t snapshots_stored_ = 0;
  std::optional<pb::Commit> last_commit_;
  std::function<void(const pb::Commit&)> at_commit_;
};

}  // namespace skerry::simulation
