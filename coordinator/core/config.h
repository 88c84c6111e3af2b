// SPDX-License-Identifier: Apache-2.0
// The timeouts and limits of the coordinator's core. check() verifies the
// relations between them.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/result.h"

namespace skerry::coordinator {

struct Config {
  // Leases. A node counts `lease` from before it sends a renewal. The
  // coordinator counts `lease + grace` from when it receives the renewal.
  Duration lease = std::chrono::seconds(6);
  Duration grace = std::chrono::seconds(2);
  Duration heartbeat = std::chrono::seconds(1);
  // If a node's connection closes and the same incarnation does not reconnect
  // within `reconnect`, its leases end early. In each `early_end_window` this
  // applies to at most max(early_ends, early_end_share of the fleet) nodes.
  Duration reconnect = std::chrono::seconds(1);
  Duration early_end_window = std::chrono::seconds(5);
  std::size_t early_ends = 3;
  double early_end_share = 0.05;
  Duration loop_lag =
      std::chrono::milliseconds(500);  // above it the coordinator distrusts its own clock
  // With more than `large_fleet` nodes, the scheduler runs at most once every
  // `reschedule_pause` × nodes, whatever the event rate.
  std::size_t large_fleet = 200;
  Duration reschedule_pause = std::chrono::microseconds(30);
  // Recovery window: after a start no lease ends within max(lease + grace,
  // 2 · N / dials_per_second). The window grows where a machine is too small
  // for its fleet. Each node that reconnects keeps it open for `arrival_pause`
  // more, up to `longest_recovery` times its length. `arrival_pause` is twice
  // the longest pause between a node's dials.
  double dials_per_second = 1000;  // nodes spread their dials: N / this
  Duration arrival_pause = std::chrono::seconds(4);
  int longest_recovery = 10;

  // After a restore the coordinator serves no request until more than half of
  // the nodes present in the backup have returned the revocations they hold.
  // It stops waiting after `recall_limit`. It always waits `recall_least`: a
  // node revoked since the backup may answer first. Keys that joined since
  // need that time to return with their certificates.
  Duration recall_limit = std::chrono::seconds(30);
  Duration recall_least = std::chrono::seconds(6);
  // A run is adopted once its experts' records have not changed for this long:
  // the records come from many nodes.
  Duration adoption_pause = std::chrono::seconds(5);
  // Deleted runs are remembered until every record of them has expired: records
  // live 30 days by clocks that may differ by two hours.
  Duration deleted_run_age = std::chrono::hours(31 * 24);
  // The coordinator does not believe that a node has seen an epoch generation
  // this far beyond its restore's own.
  std::uint32_t generation_leap = 100;
  std::uint32_t attempts = 5;  // restarts after non-finite weights without a commit between
  Duration avoid = std::chrono::minutes(10);  // a node that gave an expert up is not given it again
  // A lease ends if its connected node comes no nearer to a commit for this
  // long. The second limit holds once the run is past its budget.
  Duration stall = std::chrono::minutes(10);
  Duration stall_over_budget = std::chrono::minutes(2);
  Duration unclaimed_objects =
      std::chrono::minutes(10);  // stored, but named by nothing: dropped after this
  // Replicas of checkpoints: a node holds those of at most `replicas_of_node`
  // experts. If a node receives nothing of a replica for `replica_patience`,
  // another node is chosen, or the commit proceeds with fewer copies.
  std::size_t replicas_of_node = 64;
  Duration replica_patience = std::chrono::seconds(30);
  // Once a node reports that it drains, its commits wait at most this long for
  // their copies. Half of skerryd's default drain limit.
  Duration drain_patience = std::chrono::seconds(10);
  std::string host_label;  // of this machine: its disk and its nodes are one failure domain

  // A node absent for `forget_ms` is removed from the roster; it rejoins with
  // its certificate or a token. If the roster is full, nodes absent for
  // `forget_when_full_ms` are removed too: the longest absent first, a
  // hundredth of the roster at a time.
  std::int64_t forget_ms = 30LL * 86400 * 1000;
  std::int64_t forget_when_full_ms = 3600LL * 1000;

  std::int64_t certificate_ms = 10LL * 365 * 86400 * 1000;

  // Bounds (S15).
  std::size_t events = 20'000;
  // Limits by kind, within `events`: a flood of one kind does not evict others.
  std::size_t turned_away_events = 1'000;
  std::size_t transfer_events = 2'000;
  std::size_t run_state_events = 2'000;
  std::size_t enrolled_events = 2'000;
  std::size_t events_of_node = 5'000;  // of `events`; a node's new events evict its oldest
  std::size_t turned_away_kinds = 64;  // distinct ones a minute; further ones count as "others"
  std::size_t nodes = 20'000;          // and people
  std::size_t tokens = 10'000;
  std::size_t datasets = 1'000;
  std::size_t runs = 1'000;
  std::size_t deleted_runs = 10'000;  // remembered; the oldest are evicted
  std::size_t connections = 25'000;
  std::size_t connections_of_person = 16;
  std::size_t fetches_of_dataset = 4;
  std::uint64_t object_bytes = 1ULL << 40;
  std::uint64_t reserve_bytes = 64ULL << 20;  // disk space never given to objects
  std::size_t reply_bytes = 200 << 10;        // of a list in one reply; a message has ≤ 256 KiB

  // ON FAILURE: kInvalid, with the relation that does not hold.
  Result<void> check() const;
};

}  // namespace skerry::coordinator
