// SPDX-License-Identifier: Apache-2.0
// The scheduler: a pure function from experts and slots to grants, yields and
// moves, each with a one-line reason.
//
//   1. Who waits: the expert with the most operations left goes first, to the
//      fastest free slot that fits it. If only held slots fit it, and a holder
//      of one fits a free slot, the two change places.
//   2. Turns: after its turn, the holder with the least left gives way to a
//      waiting expert. That one must have half a turn's work more left.
//   3. Moves: the expert that would end last goes to a faster slot, free or by
//      exchange, if that gains clearly more than it costs. That is the time
//      from a grant to training, and the time to fetch what the node lacks.
//   4. Width: at a commit a lease takes free slots of its node, of the same
//      device, that no waiting expert fits. It takes as many as its run asks
//      for. If the run leaves that open, it doubles them while that was
//      measured to gain kWorthACard, and tries once what was not measured. It
//      gives half of them back if they gain less.
//
// What a lease took by measure counts as free for every expert that waits or
// moves. It gives such a slot up at once, at the same epoch: its node loses no
// step by that.
//
// A lease never moves at once: its holder gives it back at its next commit. The
// slot that it moves to stays reserved meanwhile. Measurements vary by a tenth,
// so speeds that differ by less count as equal. Of equal slots one that has the
// expert's files comes first, then one that fetches them ahead. The others
// follow by memory, the least first, then by id.
//
// No grant or move makes a run cost more an hour than it may. Leases that cost
// more already stay.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"

namespace skerry::coordinator {

struct SlotId {
  NodeId node;
  std::uint32_t slot = 0;
  auto operator<=>(const SlotId&) const = default;
};

// What some experts have in common: they train the same model in the same way.
// Experts of a run share a job; its router has another.
struct SchedulableJob {
  // Operations a second, of each slot in the order of SchedulableNode::slots of
  // all nodes. 0: it does not fit there.
  std::vector<double> speed;
  std::string needs;  // "at least 21.3 GB"; for people
  // By i and slot: how many times as fast 2^(i + 1) cards of the slot's device
  // are as half of them. 0, or absent: not measured.
  std::vector<std::vector<double>> gains{};
};

struct SchedulableExpert {
  ExpertId id;
  std::string run_name;
  Step step = 0;
  Step steps_target = 1;
  bool wanted = true;             // false: paused, stopped, done or failed
  std::string unwanted_because;   // "the run is paused"
  std::size_t job = 0;            // an index
  double work = 0;                // operations left
  std::uint32_t turn_rounds = 0;  // a turn's length in commits; 0: turn_seconds counts
  double turn_seconds = 1200;
  std::uint32_t rounds_in_turn = 0;
  bool yields = false;         // an earlier schedule has told it to
  double seconds_in_turn = 0;  // since the grant
  double start_seconds = 0;    // from a grant to training, beside what a node must fetch
  double bytes = 0;            // of its files: checkpoint and shards
  std::optional<SlotId> holder;
  std::optional<SlotId> reserved;  // the slot that an earlier schedule chose for it
  // Bytes of its files that these nodes lack; all others lack all of them.
  // 0: it starts from the node's own disk.
  std::map<NodeId, double> lacks;
  std::optional<NodeId> stands_by;    // fetches its files ahead, and may lack the last ones
  std::set<NodeId> avoid;             // gave it up recently
  double dollars_per_hour = 0;        // the most that its run may cost; 0: no limit
  std::uint32_t cards = 1;            // that its lease is to hold; 0: as many as gain
  std::uint32_t batch = 1;            // is shared by cards that divide it
  std::vector<std::uint32_t> more;    // slots of its node that its lease holds besides
  std::uint32_t rounds_of_width = 0;  // commits with these
  bool at_commit = false;             // since the last schedule
};

struct SchedulableSlot {
  std::uint32_t index = 0;
  std::uint64_t memory_bytes = 0;
  double price = 0;  // dollars an hour
  std::string device = "";
  bool alone = false;  // no lease holds it beside another
};

struct SchedulableNode {
  NodeId id;
  std::string name;
  std::vector<SchedulableSlot> slots;
  bool usable = true;
  bool draining = false;         // its leases end at their next commits; implies not usable
  std::string unusable_because;  // "cordoned", "draining", "lost"
  bool knows_cards = false;      // it may have leases of several slots
  double bytes_per_second = 1;   // that it fetches
};

struct Grant {
  ExpertId expert;
  SlotId slot;
  std::string reason;
  std::vector<std::uint32_t> more = {};  // further slots of the node
  double lacks = 0;                      // bytes of the expert's files that the node lacks
};

// A lease that goes on with other slots beside its own.
struct Resize {
  ExpertId expert;
  std::vector<std::uint32_t> more;
  std::string reason;
};

struct Yield {
  ExpertId expert;
  std::string reason;
};

// A slot that is kept for an expert until it is free.
struct Reservation {
  ExpertId expert;
  SlotId slot;
};

struct Why {
  ExpertId expert;
  std::string reason;
  double seconds_left = -1;  // on the slot that it holds; < 0: it holds none
  // The slot that it holds, as SchedulableJob::speed counts them.
  std::optional<std::size_t> slot = std::nullopt;
};

struct Schedule {
  std::vector<Grant> grants;
  std::vector<Resize> resizes;            // before the grants, which may have what they free
  std::vector<Yield> yields;              // every lease that should end at its next commit
  std::vector<Reservation> reservations;  // all that hold from here on
  std::vector<Why> why;                   // one for each expert, in their order
  std::size_t spares = 0;                 // usable slots left over
  // Nodes with a slot that fits an expert which waits, and that its run could
  // pay for.
  std::set<NodeId> awaited;
};

// What a doubled number of cards must gain to be worth it.
inline constexpr double kWorthACard = 1.3;
// Commits with the same cards before what they gained counts against them.
inline constexpr std::uint32_t kRoundsToMeasure = 3;

// REQUIRES: every node's `bytes_per_second` is above 0. Every job's `speed` has
// one number for each slot, as each of its `gains` has.
Schedule schedule(const std::vector<SchedulableExpert>& experts,
                  const std::vector<SchedulableNode>& nodes,
                  const std::vector<SchedulableJob>& jobs);

}  // namespace skerry::coordinator
