// SPDX-License-Identifier: Apache-2.0
// Every time and bound of the coordinator's core, in one place, with their
// relations checked.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/result.h"

namespace skerry::coordinator {

struct Config {
  // Leases: a node counts `lease` from before it sent a renewal, the
  // coordinator `lease + grace` from its receipt.
  Duration lease = std::chrono::seconds(6);
  Duration grace = std::chrono::seconds(2);
  Duration heartbeat = std::chrono::seconds(1);
  // A closed connection without a reconnect of the same incarnation ends its
  // leases after `reconnect`, but at most max(early_ends, early_end_share of
  // the fleet) nodes in each `early_end_window`.
  Duration reconnect = std::chrono::seconds(1);
  Duration early_end_window = std::chrono::seconds(5);
  std::size_t early_ends = 3;
  double early_end_share = 0.05;
  Duration loop_lag =
      std::chrono::milliseconds(500);  // above it the coordinator distrusts its own clock
  // Above so many nodes the schedule is looked at again only after this pause
  // for each node, however much happens.
  std::size_t large_fleet = 200;
  Duration reschedule_pause = std::chrono::microseconds(30);
  // After a start no lease ends within max(lease + grace, 2 · N /
  // dials_per_second). It takes longer where the machine is too small for its
  // fleet: each node that comes back keeps the window open for `arrival_pause`
  // (twice the longest pause between a node's dials), up to `longest_recovery`
  // times its length.
  double dials_per_second = 1000;  // nodes spread their dials: N / this
  Duration arrival_pause = std::chrono::seconds(4);
  int longest_recovery = 10;

  // After a restore nobody is answered before more than half of the nodes that
  // the backup knows as present have given back the revocations that they hold,
  // or this time has passed.
  // Never before `recall_least`: a node that was revoked since the backup is
  // among those that it knows, and may answer first. Keys that joined since
  // need that time to come back with the record of it.
  Duration recall_limit = std::chrono::seconds(30);
  Duration recall_least = std::chrono::seconds(6);
  // A run is adopted once records have told nothing else of its experts for so
  // long: they come from many nodes.
  Duration adoption_pause = std::chrono::seconds(5);
  // Deleted runs are remembered until every record of them is over: those live
  // 30 days by clocks that may be two hours apart.
  Duration deleted_run_age = std::chrono::hours(31 * 24);
  // How many generations of epochs above its restore's own a coordinator
  // believes nodes to have seen.
  std::uint32_t generation_leap = 100;
  std::uint32_t attempts = 5;  // restarts after non-finite weights without a commit between
  Duration avoid = std::chrono::minutes(10);  // a node that gave an expert up is not given it again
  Duration unclaimed_objects =
      std::chrono::minutes(10);  // stored, but named by nothing: dropped after this
  // Copies of checkpoints at nodes: how many experts one node holds replicas
  // of, and how long one may receive nothing of a replica before another is
  // chosen, or the commit goes on with fewer copies.
  std::size_t replicas_of_node = 64;
  Duration replica_patience = std::chrono::seconds(30);
  // After a node said that it is going away: how long its commits wait for
  // their copies. Half of what skerryd takes for leaving unless told otherwise.
  Duration drain_patience = std::chrono::seconds(10);
  std::string host_label;  // of this machine: its disk and the nodes on it are one place

  // A node that has been gone for so long is forgotten, until it shows its
  // certificate or a token. Where the roster is full, so are those that have
  // been gone for `forget_when_full_ms`, the longest first, a hundredth of the
  // roster at once.
  std::int64_t forget_ms = 30LL * 86400 * 1000;
  std::int64_t forget_when_full_ms = 3600LL * 1000;

  std::int64_t certificate_ms = 10LL * 365 * 86400 * 1000;

  // Bounds (S15).
  std::size_t events = 20'000;
  std::size_t turned_away_events =
      1'000;  // of these: who floods the coordinator does not drive out what matters
  std::size_t transfer_events = 2'000;  // of these, likewise
  std::size_t run_state_events = 2'000;
  std::size_t enrolled_events = 2'000;
  std::size_t events_of_node = 5'000;  // of these; its own oldest make room for more
  std::size_t turned_away_kinds = 64;  // told apart in one minute; beyond, they count as "others"
  std::size_t nodes = 20'000;          // and people
  std::size_t tokens = 10'000;
  std::size_t datasets = 1'000;
  std::size_t runs = 1'000;
  std::size_t deleted_runs = 10'000;  // remembered; the oldest make room
  std::size_t connections = 25'000;
  std::size_t connections_of_person = 16;
  std::size_t fetches_of_dataset = 4;
  std::uint64_t object_bytes = 1ULL << 40;
  std::uint64_t reserve_bytes = 64ULL << 20;  // of the disk, never given to objects
  std::size_t reply_bytes = 200 << 10;        // of a list in one answer; a message may have 256 KiB

  // kInvalid, with the relation that does not hold.
  Result<void> check() const;
};

}  // namespace skerry::coordinator
