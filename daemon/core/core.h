// SPDX-License-Identifier: Apache-2.0
// The daemon's core: a deterministic state machine without I/O. It keeps leases
// and converges on the assignment. It decides when to start, stop and give up
// engines, what to commit, and when work is lost. The same events at the same
// times give the same effects.
//
// Guarantees (docs/internals/reliability.md):
//  - Hello is the first message on every connection. A heartbeat leaves every
//    heartbeat_ms, whatever else happens.
//  - A lease is valid for TTL·(1−ε) from before the heartbeat that renewed it
//    was sent. After that the node commits nothing. It trains on for up to
//    `offline_rounds` rounds, and commits that work if its lease is renewed.
//  - The node discards work only on a higher epoch, on Fenced, or on a newer
//    assignment without it.
//  - It refuses an epoch generation lower than the highest it has seen.
//  - Each expert has one commit in flight, retried with the same bytes until a
//    final answer. The next commit covers all steps since.
//  - It holds the replicas that its assignment names. Each heartbeat reports
//    which of them are durable.
//  - The heads of the last kKeptMost experts that it trained stay on the disk
//    until the disk is full.
//  - Checkpoints that were here when the coordinator was restored stay, at most
//    kOutlivedMost of them. One is dropped if its run is deleted, or if an
//    assignment names it or a later one of its expert. A full disk evicts the
//    least valuable first.
//  - A lost, late, duplicated or reordered reply does no harm.
//  - A notice with a deadline makes the node give its leases back. A heartbeat
//    says so first. The node stays, and works again if it lives kLivesOn past
//    the deadline. SIGTERM does the same, and ends the process.
//  - --idle-exec runs once after a time without work, if the coordinator
//    agrees, and never while a lease is held (idle.h).
//  - A leaving node takes a last snapshot only if it can be committed in time.
//    Without one it trains on until the commit in flight is through.
//
// REQUIRES: the host has validated all bytes from outside.
// ON FAILURE: a broken invariant of the core itself fails a CHECK.
// THREADS: one.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "daemon/core/effects.h"
#include "daemon/core/event.h"

namespace skerry::daemon {

inline constexpr Duration kNoticeMargin = std::chrono::seconds(1);  // before the deadline
inline constexpr Duration kLivesOn = std::chrono::minutes(1);       // past a notice's deadline
inline constexpr std::size_t kKeptMost = 64;
inline constexpr std::size_t kOutlivedMost = 512;  // more than a node has before its first restore

struct CoreConfig {
  std::uint64_t incarnation = 0;  // random, drawn at each process start, ≠ 0
  std::string software = "skerryd";
  std::string host_label;
  std::vector<pb::Slot> slots;
  Duration drain_limit = std::chrono::seconds(20);  // from SIGTERM or a notice on
  double price = 0;                                 // of the machine, dollars an hour; 0: unknown
  Duration idle_limit{};  // without work, before --idle-exec runs; 0: there is none
};

// The contents of the disk at the start.
struct Recovered {
  std::string state;                                 // the last Write; empty: a first start
  std::map<Hash, ObjectKind> objects;                // verified or not
  std::set<Hash> partial = {};                       // those of `objects` that are incomplete
  std::map<Hash, CheckpointFacts> checkpoints = {};  // the complete checkpoints of `objects`
};

// For tests, the simulation's invariants and the status line.
struct SlotView {
  std::uint32_t slot = 0;
  bool has_lease = false;  // holds an expert, expired or not
  ExpertId expert;
  Epoch epoch;
  pb::SlotPhase phase = pb::SLOT_IDLE;
  Step step = 0;            // trained
  Step committed_step = 0;  // of the head it knows
  std::string head;         // raw manifest hash; empty: none
  bool commit_in_flight = false;
  bool storing = false;     // a snapshot is being stored
  bool may_commit = false;  // the lease is valid at the last step's time
  Duration lease_until{};   // boot time
};

// The newest committed checkpoint of an expert that this node trained. It stays
// while the disk has room, also after its lease, so that nodes can serve a
// finished ensemble.
struct KeptCheckpoint {
  ExpertId expert;
  Epoch epoch;
  Step step = 0;
  pb::ObjectRef object;
  double loss = 0;  // 0: not known
};

class Core {
 public:
  // ON FAILURE: kCorrupt if the recovered state cannot be read; the daemon
  // refuses to start (S16).
  static Result<Core> make(CoreConfig config, Recovered recovered);
  Core(Core&&) noexcept;
  Core& operator=(Core&&) noexcept;
  ~Core();

  // REQUIRES: the first event is Tick; `now.boot` never decreases.
  Effects step(const Event& event, Now now);

  std::vector<SlotView> slots() const;
  const std::vector<KeptCheckpoint>& kept() const;  // the newest last
  bool connected() const;                           // this connection's Hello got its reply
  // A notice holds, and the coordinator knows that every lease was given back.
  bool has_left() const;
  // RETURNS: while a notice holds, the checkpoints that are on their way to the
  // coordinator. Nothing else goes out until they are there.
  std::vector<Hash> urgent() const;

 private:
  struct Impl;
  explicit Core(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace skerry::daemon
