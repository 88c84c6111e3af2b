// SPDX-License-Identifier: Apache-2.0
// The daemon without its I/O: keeps the leases, converges on the assignment,
// decides when engines start, stop and are given up, what is committed and when
// work is lost. One thread; deterministic: the same events at the same times
// give the same effects. Bytes from outside were validated by the host; a
// broken invariant of our own is a CHECK.
//
// What it holds to (docs/internals/reliability.md):
//  - Hello is first on every connection; a heartbeat goes out every heartbeat_ms whatever else happens.
//  - A lease counts from before the heartbeat that renewed it was sent: TTL·(1−ε). Past it nothing is
//  committed, but
//    training goes on, up to `offline_rounds` rounds, and what was trained is offered again.
//  - Only a higher epoch, Fenced, or a newer assignment without it makes the node discard work.
//  - A lower generation of epochs than was ever seen is refused.
//  - One commit in flight per expert, sent again, same bytes, until a final answer; then the next, over the
//  longer span.
//  - It holds the replicas that its assignment names, and says with each heartbeat which of them are durable.
//  - The head of each expert that it trained stays on the disk, the newest kKeptMost of them, until the disk is full.
//  - Checkpoints that were here when the coordinator was restored stay, kOutlivedMost of them, until their run is deleted, an
//    assignment names them or a later one of their expert, or the disk is full and nothing of less worth is left.
//  - No reply can harm by being lost, late, doubled or out of order.
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

inline constexpr std::size_t kKeptMost = 64;
inline constexpr std::size_t kOutlivedMost = 512;  // more than a node has before its first restore

struct CoreConfig {
  std::uint64_t incarnation = 0;  // drawn at each process start, ≠ 0
  std::string software = "skerryd";
  std::string host_label;
  std::vector<pb::Slot> slots;
  Duration drain_limit = std::chrono::seconds(20);
};

// What the disk held at the start.
struct Recovered {
  std::string state;                                 // the last Write; empty: a first start
  std::map<Hash, ObjectKind> objects;                // verified or not
  std::set<Hash> partial = {};                       // of them, those that are not whole
  std::map<Hash, CheckpointFacts> checkpoints = {};  // of them, the checkpoints that are whole
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
  bool storing = false;     // a snapshot is on its way to the disk
  bool may_commit = false;  // the lease is valid at the last step's time
  Duration lease_until{};   // boot time
};

// The newest committed checkpoint of an expert that this node trained. It stays
// while there is room, after its lease too, so that a finished ensemble can be
// had from the nodes.
struct KeptCheckpoint {
  ExpertId expert;
  Epoch epoch;
  Step step = 0;
  pb::ObjectRef object;
  double loss = 0;  // 0: not known
};

class Core {
 public:
  // kCorrupt when the recovered state cannot be read: the daemon refuses to
  // start (S16).
  static Result<Core> make(CoreConfig config, Recovered recovered);
  Core(Core&&) noexcept;
  Core& operator=(Core&&) noexcept;
  ~Core();

  // Call with Tick first. `now.boot` never goes back.
  Effects step(const Event& event, Now now);

  std::vector<SlotView> slots() const;
  const std::vector<KeptCheckpoint>& kept() const;  // the newest last
  bool connected() const;                           // Hello was answered on this connection

 private:
  struct Impl;
  explicit Core(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace skerry::daemon
