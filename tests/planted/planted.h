// SPDX-License-Identifier: Apache-2.0
// The bugs that tests/planted/*.patch plant in a copy of the sources. The
// simulation and the fuzz targets must find each of them. A place asks
// `planted("name")`. The planted build turns on one bug at a time, at run time;
// in every other build the answer is a constant false. To plant one, see
// docs/internals/testing.md.
#pragma once

#include <cstddef>
#include <iterator>
#include <string_view>

namespace skerry {

enum class FoundBy { kSimulation, kFuzzing };

struct PlantedBug {
  std::string_view name;
  std::string_view about;
  FoundBy found_by = FoundBy::kSimulation;
};

inline constexpr PlantedBug kPlantedBugs[] = {
    // ---- Epochs and grants ----
    {"epoch_not_persisted", "an assignment leaves before its epoch is durable"},
    {"renewal_before_durable", "a heartbeat's answer renews a lease whose grant is not durable"},
    {"epoch_not_raised", "an expert is given to another node under the old epoch"},
    {"generation_not_raised", "a restored backup goes on in its old generation"},
    {"generation_not_taken",
     "a coordinator restored to an older backup ignores what later generation nodes have seen"},
    {"restores_alike", "two restores of one backup go on with the same epochs"},
    {"restored_leases_kept", "a restored coordinator believes the leases of its backup"},
    {"slot_given_twice", "the scheduler gives a slot that trains already to a second expert"},
    {"grants_to_cordoned", "the scheduler gives work to a node that is cordoned or drains"},
    {"furthest_ahead_first", "of the experts that wait, the furthest ahead is granted first"},
    {"version_before_durable", "a heartbeat's answer names an assignment that is not durable yet"},
    {"turn_never_ends", "where nodes are few, the first experts never give way to those behind"},
    {"misfits_granted", "an expert is given to a card that it does not fit"},
    // ---- Money ----
    {"budget_ignored", "a run goes on although its budget is spent"},
    {"changes_not_charged", "what a slot cost since the last tick is lost where its lease ends"},
    {"dear_node_granted", "an expert is given to a node above its run's max_node_price"},
    {"rate_ignored", "a grant makes a run cost more an hour than it may"},
    // ---- Leases ----
    {"margin_too_small",
     "the coordinator takes a lease back before its holder stops counting on it"},
    {"old_heartbeat_counts", "a heartbeat that comes late, or twice, counts as a new one"},
    {"lease_from_answer", "a node counts its lease from the answer, not from before it asked"},
    {"commits_past_lease", "a node commits although its lease has run out"},
    {"lag_not_excused",
     "what queued up while the coordinator stood still counts as the nodes' silence"},
    {"recovery_window_ignored", "a closed connection ends a lease in the recovery window"},
    {"early_ends_unbounded", "a broken switch ends the leases of the whole fleet at once"},
    {"reconnect_ignored", "a lease ends early although its holder has reconnected"},
    {"lapsed_forgotten", "a lease that had lapsed before a restart never lapses again"},
    {"incarnation_ignored", "a node that was started again keeps the lease of its former process"},
    {"stall_from_grant", "a lease ends so long after its grant, whatever was trained since"},
    {"stall_never_ends", "a node that comes no nearer to a commit keeps its lease"},
    {"avoided_granted", "a node is given an expert again that it has just given up"},
    // ---- Several cards ----
    {"further_slots_forgotten", "the slots that a lease holds besides count as free"},
    {"narrowing_ignored", "a slot goes to another expert while its old lease keeps it"},
    {"further_slots_free", "a lease pays for its own slot alone"},
    {"neighbours_used", "an engine trains on the cards beside its own, not on its lease's"},
    {"cards_not_told", "what several cards trained is committed as the speed of one"},
    // ---- Idle nodes ----
    {"stops_though_awaited", "an idle node may stop although an expert waits for it"},
    {"stops_last_copy", "an idle node may stop although checkpoints lack a copy without it"},
    {"idle_exec_again", "an idle node runs its command again and again"},
    // ---- Commits ----
    {"acknowledged_before_sync", "a commit is accepted before it is durable"},
    {"stale_epoch_accepted", "a commit of an epoch that is over is applied"},
    {"parent_not_checked", "a commit is applied on another head than its parent"},
    {"duplicate_applied", "a commit that is said twice is applied twice"},
    {"holder_not_checked", "a node's commit for another's expert is applied"},
    {"manifest_not_checked", "what a manifest says of itself is not compared with its commit"},
    {"old_attempt_accepted", "a commit of an attempt that has failed is applied"},
    {"attempts_never_forgiven", "attempts count over the whole run, not since the last commit"},
    {"two_commits_in_flight", "a node sends its next commit before the last was answered"},
    {"anyone_returns", "a node gives back a lease that another holds"},
    {"anyone_reports", "a node's report on another's expert starts a new attempt"},
    // ---- Copies ----
    {"committer_counted", "the node that commits counts among the places that hold its checkpoint"},
    {"hosts_not_distinct", "two nodes of one machine count as two places"},
    {"copies_not_awaited", "a commit is accepted before the places that are asked for hold it"},
    {"lost_copy_counted", "the copy of a node that is lost counts as a place"},
    {"former_copy_counted", "a copy that a node's former process reported counts as a place"},
    {"replica_before_durable", "a node says that it holds a replica before its disk does"},
    {"replicas_not_restored", "a copy that was lost with its node is not made again"},
    // ---- Garbage ----
    {"dropped_before_durable", "a checkpoint is removed before its successor is durable"},
    {"drop_not_withdrawn",
     "an object that is wanted again is removed, since nothing named it a moment ago"},
    {"kept_one_too_few", "a checkpoint is removed that durable state still names"},
    {"pending_collected", "an object is removed that a commit which waits for its copies names"},
    {"collected_in_flight", "a node removes the checkpoint whose commit is in flight"},
    {"collected_unasked",
     "a restarted node removes checkpoints before any coordinator has answered"},
    {"event_numbers_reused", "after a start events take numbers that were used before"},
    {"events_never_trimmed", "the event log grows without end"},
    // ---- Keys and tokens ----
    {"token_overspent", "a token enrols one key more than it may"},
    {"token_use_not_saved", "the use of a token is forgotten in a crash"},
    {"enrolled_before_sync", "a certificate leaves before its node is durable"},
    {"revoked_still_heard", "a revoked key is still served"},
    {"revoked_let_in", "the transport lets a revoked key in"},
    {"recall_skipped", "a restored coordinator answers before it has asked nodes for revocations"},
    {"token_never_ends", "a token enrols keys after its end"},
    {"revocation_before_sync",
     "what an administrator asked for is acknowledged before it is durable"},
    // ---- A node's own work ----
    {"resumes_from_head", "an engine goes on from the last commit, though it is told a later step"},
    {"resumes_older_training",
     "an engine is given the weights of the head as those of a later step"},
    {"trusts_damaged", "a checkpoint that the disk has lost is offered again without end"},
    {"old_assignment_applied", "an assignment that was overtaken on its way replaces a newer one"},
    {"drain_drops_work", "a drain gives the lease back without committing what was trained"},
    {"full_disk_forever", "a checkpoint that met a full disk is never stored again"},
    // ---- Records ----
    {"record_signature_unchecked", "a record is held whose signature is not its author's"},
    {"certificate_unchecked", "a record is held of an author whom the coordinator never certified"},
    {"revoked_signer_accepted", "a record of a revoked node is held"},
    {"record_version_ignored", "an old record takes the place of a newer one"},
    {"incarnation_forgotten",
     "a start whose clock went back signs under older numbers than its disk knows of"},
    {"contradiction_by_arrival",
     "of two contents of one version each process keeps what came first"},
    {"expired_record_revived", "a record that has expired comes back"},
    {"news_never_repeated", "a record that was missed while it was news is never learnt"},
    {"holdings_never_told", "what a node holds is told once, and never again"},
    // ---- The rules of disks ----
    {"torn_batch_kept", "half of a batch survives a crash"},
    {"batches_reordered", "a later batch survives a crash, an earlier one does not"},
    {"sync_retried", "a failed sync is taken for a success"},
    {"manifest_first", "a manifest is durable before its chunks are"},
    {"hash_not_checked", "a chunk that was read wrongly is stored under its right name"},
    // ---- Hosts ----
    {"host_state_not_written", "a daemon's state is told to be durable and never written"},
    {"host_state_told_early", "a daemon's state is told to be durable before it is"},
    {"host_disk_error_ignored", "a daemon goes on although its disk has failed"},
    {"host_event_twice", "a daemon's core hears each word of an engine twice"},
    {"host_stored_unseen", "an object is told to be stored without a look at the disk"},
    {"host_memory_released", "an engine may write its snapshot again before it is stored"},
    {"host_failure_not_told", "a daemon's core never hears that a fetch has failed"},
    {"host_batch_told_early", "the coordinator's batch is told to be durable before it is"},
    {"host_batch_error_ignored", "the coordinator takes a batch that was not written for durable"},
    {"host_full_batch_lost", "the coordinator drops a batch that finds no room"},
    {"host_object_error_ignored", "the coordinator goes on although a chunk's write has failed"},
    {"host_object_not_told", "the coordinator's core never hears that an object has come"},
    // ---- Decoders (tests/fuzz) ----
    {"numbers_not_checked", "a control message may carry numbers that are not finite",
     FoundBy::kFuzzing},
    {"progress_not_finite", "an engine's progress may carry numbers that are not finite",
     FoundBy::kFuzzing},
    {"secret_of_any_size", "a token's secret may have any size", FoundBy::kFuzzing},
    {"foreign_id_certified", "a certificate may name another node than its key's",
     FoundBy::kFuzzing},
    {"positions_with_holes", "a manifest's tensors may stand at positions that are not there",
     FoundBy::kFuzzing},
    {"data_left_over", "a safetensors file may hold data of no tensor", FoundBy::kFuzzing},
    {"labels_not_counted", "an IDX file may have fewer labels than images", FoundBy::kFuzzing},
    {"label_of_no_class", "an image of CIFAR may have a label beyond its classes",
     FoundBy::kFuzzing},
    {"numbers_left_over", "an npy file may hold more numbers than its shape says",
     FoundBy::kFuzzing},
    {"unexplained_sample", "a WebDataset sample without an image does not say why it is skipped",
     FoundBy::kFuzzing},
    {"broken_jpeg_accepted", "a JPEG that libjpeg gave up on is an image", FoundBy::kFuzzing},
    {"range_without_end", "whole numbers of a run file have no upper limit", FoundBy::kFuzzing},
    {"key_not_checked", "a context's coordinator key may be no key", FoundBy::kFuzzing},
};

// A name of the list, checked when it is compiled.
class Planted {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor)
  consteval Planted(std::string_view name) {
    while (kPlantedBugs[number_].name != name) ++number_;  // past the end it does not compile
  }
  // NOLINTNEXTLINE(google-explicit-constructor)
  consteval Planted(const char* name) : Planted(std::string_view(name)) {}
  constexpr std::size_t number() const { return number_; }

 private:
  std::size_t number_ = 0;
};

#ifdef SKERRY_PLANTED
inline std::size_t planted_bug =
    std::size(kPlantedBugs);  // the one that is turned on; past the end: none
inline bool planted(Planted bug) { return bug.number() == planted_bug; }

// Turns one on. RETURNS: false if the list has no such bug, or this is no
// planted build; then nothing changes.
inline bool plant(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kPlantedBugs); ++i) {
    if (kPlantedBugs[i].name != name) continue;
    planted_bug = i;
    return true;
  }
  return false;
}
#else
constexpr bool planted(Planted /*bug*/) { return false; }
constexpr bool plant(std::string_view /*name*/) { return false; }
#endif

}  // namespace skerry
