// SPDX-License-Identifier: Apache-2.0
// Which objects are whole on the coordinator's disk, and which may be dropped
// (S8).
//
// Invariant: the references from durable state to each object are counted. A
// referenced ("named") object is whole here, damaged, or being fetched. An
// unnamed object is dropped once all of these hold:
//   - the batch that unnamed it is durable
//   - nobody reads it
//   - nothing else needs it
// An object that was never named waits Config::unclaimed_objects first.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/rooms/events.h"

namespace skerry::coordinator {

struct StoredObject {
  std::uint64_t manifest_bytes = 0;
  std::uint64_t bytes = 0;
  bool checkpoint = false;
  ObjectFacts facts;
};

class Objects : Room {
 public:
  using IsWanted = std::function<bool(const Hash&)>;

  // LIFETIME: `events` and `peers` outlive this.
  Objects(Context& the_context, EventLog& events, const Peers& peers)
      : Room(the_context), events_(events), peers_(peers) {}

  const StoredObject* find(const Hash& manifest) const;  // null: it is not whole here
  bool has(const Hash& manifest) const { return stored_.contains(manifest); }
  bool has(const std::string& manifest) const { return has(*Hash::from_raw(manifest)); }
  bool is_named(const Hash& manifest) const { return named_.contains(manifest); }
  bool is_damaged(const Hash& manifest) const { return damaged_.contains(manifest); }
  const std::set<Hash>& damaged() const { return damaged_; }

  void name(const std::string& manifest);
  // REQUIRES: an earlier name() that this call undoes.
  void unname(const std::string& manifest, Purpose purpose);
  // Restarts the time after which an unnamed object is dropped.
  void leave_unclaimed(const Hash& manifest) { unclaimed_[manifest] = now.boot; }
  // RETURNS: whether it had been damaged.
  bool store(const ObjectStored& event);
  // An object that nothing names is whole here no longer, and is dropped.
  // RETURNS: false if nothing names it, or if its damage is known already.
  bool damage(const Hash& manifest);
  void drop_unclaimed(const IsWanted& is_wanted);
  // RETURNS: whether durable state may still name it, though nothing does now.
  bool is_leaving(const Hash& manifest) const;
  // REQUIRES: the step's batch is numbered.
  void drop_leaving(const IsWanted& is_wanted);

  // Keeps the objects that a person fetches while the connection lasts and a
  // while longer, so that a slow fetch completes although the run continues.
  void keep_for_reader(const NodeId& person, const ConnectionId& connection,
                       const pb::EnsembleReply& ensemble);

  // Whether the disk had room for `bytes` besides its reserve when last
  // measured.
  bool has_room(std::uint64_t bytes) const;
  // ON FAILURE: kExhausted: there is none for `bytes` that `who` needs.
  Result<void> check_room(std::uint64_t bytes, const std::string& who) const;
  bool lacks_room() const { return disk_lacks_ > 0; }
  std::uint64_t disk_free() const { return disk_free_.value_or(0); }
  void disk_measured(std::uint64_t bytes);
  // Logs an event once, and another when `needed` bytes are free.
  void disk_is_full(std::uint64_t needed);

  // Starts a verification of the object, or reports its progress. `trouble` is
  // what is known to be wrong with the object, or empty.
  Result<pb::AdminReply> verify(const Hash& manifest, const std::string& trouble);
  void checked(const ObjectChecked& event, const std::string& trouble);
  void forget_verdicts();

 private:
  struct Reader {
    NodeId person;
    std::set<Hash> checkpoints;
    Duration until{};
  };
  struct Verification {
    Duration asked{};
    bool done = false;
    std::uint64_t bytes = 0;
    std::uint64_t chunks = 0;
    std::vector<Hash> damaged;
    std::string trouble;  // when it ended: the object may be repaired by the next request
  };

  void drop_once_durable(const Drop& drop);
  void drop_unnamed(std::map<Hash, StoredObject>::iterator object);
  void forget_readers();
  bool is_being_read(const Hash& manifest) const;

  EventLog& events_;
  const Peers& peers_;
  std::map<Hash, StoredObject> stored_;
  std::map<Hash, std::uint32_t> named_;  // how often
  std::map<Hash, Duration> unclaimed_;   // since when
  std::set<Hash> damaged_;               // of the named ones
  // Each with the batch that must be durable before it is dropped; kThisBatch:
  // that of the current step.
  static constexpr std::uint64_t kThisBatch = ~std::uint64_t{0};
  std::deque<std::pair<Drop, std::uint64_t>> leaving_;
  std::map<ConnectionId, Reader> reading_;
  std::optional<std::uint64_t> disk_free_;
  // Bytes that must be free before the log reports room again; 0: none due.
  std::uint64_t disk_lacks_ = 0;
  std::map<Hash, Verification> verifications_;
};

}  // namespace skerry::coordinator
