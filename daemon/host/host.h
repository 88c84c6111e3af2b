// SPDX-License-Identifier: Apache-2.0
// The daemon's core with its I/O: feeds it events of the transport, the engines
// and the disk worker, and carries out its effects. It never waits: loop.h
// waits for it in the program, a virtual clock in a simulation. Nothing here
// waits for a disk, so a heartbeat never does.
//
// ON FAILURE: exit_code() says that the process must end. A disk that failed
// ends it with kExitRetry, since only a restart finds out what is on it.
// THREADS: one. Jobs of the disk worker run where the worker runs them.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/event_queue.h"
#include "base/worker.h"
#include "daemon/core/core.h"
#include "daemon/core/perform.h"
#include "daemon/core/state_writes.h"
#include "daemon/host/devices.h"
#include "daemon/host/engines.h"
#include "daemon/host/idle_command.h"
#include "daemon/host/object_jobs.h"
#include "daemon/host/peer_gossip.h"
#include "exchange/chunk_store.h"
#include "peer/peers.h"
#include "protocol/transport.h"
#include "storage/object_store.h"
#include "storage/store.h"

namespace skerry::daemon {

inline constexpr int kExitDone = 0;
inline constexpr int kExitRetry = 75;
inline constexpr int kExitConfiguration = 78;
inline constexpr std::size_t kLogRing = 200;
inline constexpr int kRefusalsAllowed = 20;  // of our own key, in a row; then this node was revoked

inline constexpr std::string_view kHostStateKey = "daemon/state";

struct HostOptions {
  std::vector<DeviceSlot> slots;
  std::string software;
  std::string host_label;
  std::uint64_t incarnation = 0;
  Duration drain_limit = std::chrono::seconds(20);
  std::uint64_t upload_limit = 0;  // of chunks, bytes a second over all connections; 0: none
  std::uint64_t download_limit = 0;
  std::string
      // HOST:PORT; empty: as the coordinator sees this node, at the port that
      // is listened at
      peer_advertise;
  double price = 0;        // dollars an hour; 0: unknown
  Duration idle_limit{};   // 0: no --idle-exec
  std::string distrusted;  // the file of that name (daemon/host/verify.h); empty: none
};

// Who this node is to others, and the connections to them.
struct PeerParts {
  const protocol::Signer& identity;
  std::string coordinator_key;  // Ed25519
  pb::Certificate certificate;
  protocol::PeerLinks& network;
  gossip::Config pace = {};             // as PeerGossipParts has it
  gossip::SignatureChecks checks = {};  // likewise
  // What changed here is said, and what became known is made use of.
  Duration look_every = std::chrono::seconds(1);
};

// How lost cards are found.
struct CardCounter {
  Worker& worker;
  // RETURNS: the DeviceSlot::card of those that CUDA shows. Runs on the worker.
  std::function<Result<std::vector<std::string>>()> visible;
};

// What main.cc builds and owns. LIFETIME: all of it outlives the host.
struct HostParts {
  const Clock& clock;
  protocol::ClientTransport& transport;
  storage::Store& store;
  storage::ObjectStore& objects;
  Engines& engines;
  Worker& disk;
  const PeerParts* peers = nullptr;  // none: the coordinator is the only one to talk to
  IdleExec* idle_exec = nullptr;     // none: options.idle_limit is 0
  CardCounter* cards = nullptr;      // none: no card is ever lost
  // Told of each step of the core, before its effects are carried out; none:
  // nobody looks on.
  std::function<void(const Event& event, const Effects& effects)> stepped = {};
};

class Host final : private Sink, private peer::Owner {
 public:
  // ON FAILURE: kCorrupt where the saved state cannot be read.
  static Result<std::unique_ptr<Host>> make(HostParts parts, HostOptions options);
  // Finishes what the disk worker was given, the last state among it.
  ~Host() override;

  // Dials the coordinator. Once, before all below.
  void start();
  // What came of a poll of the transport. REQUIRES: a turn() follows, as after
  // a completed job and after on_drain().
  void on_transport(protocol::ClientEvent event);
  // SIGTERM; the second one leaves at once.
  void on_drain() { events_.push(DrainRequested{}); }
  // The platform, or a job manager's signal, announces the machine's end.
  void on_notice(NoticeReceived notice) { events_.push(std::move(notice)); }
  // SIGUSR1: the end is as far away as the drain limit.
  void on_user_signal();
  // Hears the connections to other nodes. RETURNS: perhaps not all; again
  // before waiting.
  bool poll_peers();
  // Does what is due and what has come.
  void turn();
  // RETURNS: the boot time at which turn() is due at the latest, if nothing
  // comes before.
  Duration next_turn() const;
  // Set once the process must end. Engines end with their owner.
  std::optional<int> exit_code() const { return exit_code_; }
  // The transport, or what else the program waits for, has failed.
  void fatal(const std::string& why);
  // Keeps what was learnt from other nodes, as the last thing.
  void stop();

  std::string status_line() const;
  const Core& core() const { return core_; }
  const PeerGossip* peer_gossip() const { return peer_gossip_.get(); }  // none where there are none

 private:
  Host(HostParts parts, HostOptions options, Core core, const std::string& records);

  // host.cc
  void ask_readmission();
  void on_enrol_reply(const std::string& bytes);
  bool is_coordinator(const NodeId& peer) const { return peer == coordinator_; }
  void look_again();
  void take_engine_events();
  void step(const Event& event);
  void push(Event event) { events_.push(std::move(event)); }
  void remember(std::string line);

  // host_effects.cc
  // Sink
  void log(const LogEntry& entry) override;
  void write(const Write& write) override;
  void send(const pb::ControlRequest& request) override;
  void cancel(const Hash& object) override;
  void fetch(const FetchObject& order) override;
  void stop(const StopEngine& order) override;
  void plan(const PlanRound& order) override { parts_.engines.plan(order); }
  void store(const StoreSnapshot& order) override;
  void start(const StartEngine& order) override;
  void drop(const DropObject& order) override;
  void collect_log(std::uint64_t request) override;
  void idle_exec(IdleExecOrder order) override;
  void count_cards() override;
  void wake_at(std::optional<Duration> boot) override { wake_at_ = boot; }
  void exit(int code) override { exit_code_ = code; }

  void start_fetch(const FetchObject& order);
  std::optional<CheckpointFacts> facts_of(const Hash& object) const;
  void launch(const StartEngine& order, Result<ResumeFile> resume);
  void release_snapshots();
  // host_peers.cc
  void make_peer_gossip(const std::string& records);
  // peer::Owner
  Result<void> send(const NodeId& peer, std::string_view bytes) override;
  bool answered(const exchange::Answer& answer) override;
  void exchanged(const exchange::Effects& effects) override;
  void gossiped(const gossip::Effects& effects) override;
  void look_around();
  void keep_records();
  bool check_disk(const Error& error);

  HostParts parts_;
  HostOptions options_;
  Core core_;
  exchange::ObjectChunkStore chunk_store_;
  NodeId coordinator_{"coordinator"};        // its id, where there are other peers
  std::unique_ptr<PeerGossip> peer_gossip_;  // none where there are none
  std::unique_ptr<peer::Peers> peers_;
  std::vector<Hash> urgent_;  // as the core said last

  EventQueue<Event> events_;
  std::optional<Duration> wake_at_;
  std::optional<int> exit_code_;
  struct Wanted {
    FetchObject order;
    std::uint64_t number = 0;  // an answer to an earlier order is none to this one
  };
  std::map<Hash, Wanted> wanted_;
  std::uint64_t orders_ = 0;
  std::set<Hash> verified_;  // in this process
  std::map<std::uint64_t, bool>
      assembling_;  // engines whose checkpoint is being read → stopped meanwhile
  std::map<std::uint64_t, std::uint32_t>
      ended_;                          // engine → slot, while its snapshot may still be wanted
  std::vector<pb::ObjectRef> beside_;  // as last told to the core
  std::string kept_;                   // manifests, as last looked at
  bool objects_changed_ = true;
  bool records_changed_ = false;
  std::uint64_t kept_incarnation_ = 0;  // that records were last kept with
  Duration next_look_{};
  Duration next_look_again_{};
  Duration next_keeping_{};
  struct Line {
    std::int64_t unix_ms = 0;
    std::string text;
  };
  std::deque<Line> log_ring_;
  int refusals_ = 0;
  StateWrites state_writes_;
};

}  // namespace skerry::daemon
