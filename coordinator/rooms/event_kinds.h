// SPDX-License-Identifier: Apache-2.0
// The kinds of events, and the word that stands for each in messages and in
// stored events. The words never change. A stored event may have a word that is
// not listed here.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string_view>

namespace skerry::coordinator {

// Sorted by word: the log reports the counts of repeated events in this order.
enum class EventKind {
  kBudget,
  kCommitted,
  kCoordinatorStarted,
  kCordoned,
  kDatasetAdded,
  kDatasetDeleted,
  kDatasetReady,
  kDiskFull,
  kDiskRoom,
  kDrained,
  kDraining,
  kEngineFailed,
  kEnrolled,
  kEvicted,
  kExpertAdded,
  kExpertDone,
  kExpertRemoved,
  kFenced,
  kGenerationRaised,
  kGranted,
  kHeadAdopted,
  kLeaseLost,
  kLeaseResized,
  kLeaseResumed,
  kLeaseReturned,
  kMoved,
  kNodeJoined,
  kNodeLeft,
  kNodeLost,
  kNodesForgotten,
  kNotice,
  kObjectDamaged,
  kObjectMended,
  kPeerFault,
  kReadmitted,
  kRecalled,
  kRecallBegun,
  kRefused,
  kReplicaStalled,
  kRevoked,
  kRunAdopted,
  kRunCreated,
  kRunDeleted,
  kRunExtended,
  kRunOrphaned,
  kRunState,
  kTransfer,
  kTurnedAway,
  kUncordoned
};

// In the order of the enumerators.
inline constexpr const char* kEventWords[] = {"budget",
                                              "committed",
                                              "coordinator_started",
                                              "cordoned",
                                              "dataset_added",
                                              "dataset_deleted",
                                              "dataset_ready",
                                              "disk_full",
                                              "disk_room",
                                              "drained",
                                              "draining",
                                              "engine_failed",
                                              "enrolled",
                                              "evicted",
                                              "expert_added",
                                              "expert_done",
                                              "expert_removed",
                                              "fenced",
                                              "generation_raised",
                                              "granted",
                                              "head_adopted",
                                              "lease_lost",
                                              "lease_resized",
                                              "lease_resumed",
                                              "lease_returned",
                                              "moved",
                                              "node_joined",
                                              "node_left",
                                              "node_lost",
                                              "nodes_forgotten",
                                              "notice",
                                              "object_damaged",
                                              "object_mended",
                                              "peer_fault",
                                              "readmitted",
                                              "recalled",
                                              "recalling",
                                              "refused",
                                              "replica_stalled",
                                              "revoked",
                                              "run_adopted",
                                              "run_created",
                                              "run_deleted",
                                              "run_extended",
                                              "run_orphaned",
                                              "run_state",
                                              "transfer",
                                              "turned_away",
                                              "uncordoned"};
static_assert(std::size(kEventWords) == static_cast<std::size_t>(EventKind::kUncordoned) + 1);
static_assert(std::ranges::is_sorted(kEventWords, {}, [](std::string_view word) { return word; }));

constexpr const char* to_string(EventKind kind) {
  return kEventWords[static_cast<std::size_t>(kind)];
}

}  // namespace skerry::coordinator
