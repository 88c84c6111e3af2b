// SPDX-License-Identifier: Apache-2.0
// The table of records that a process holds: at most one for each key, within
// fixed limits. A record that died here never comes back.
//
// Expiry counts lifetimes, not dates. A record carries its age from holder to
// holder, and each holder adds what its own steady clock measured. The record
// dies when its age reaches the lifetime that its author signed. So no node's
// wall clock can kill a live record.
//
// No signature covers an age. A holder therefore bounds it by the signed date
// and its own wall clock, give or take kClockSlack. A liar can move a death by
// two hours at most, and a clock that is an hour off moves none. A date alone
// fails: a receiver an hour ahead would lose live records. A lifetime counted
// from receipt fails too: a dead record would live as long as nodes pass it on.
// The table remembers dead records until no claimed age could revive them.
//
// A full table refuses a record that is less important than all others;
// otherwise it drops the least important. Importance falls in this order: the
// coordinator's records, the kind (revocation, run, node, expert), the
// position. An author or a run at its limit of records keeps its most important
// ones. Arrival order plays no part, so tables with the same news hold the same
// records.
//
// A value type.
// THREADS: one.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "gossip/record.h"
#include "gossip/wire.h"
#include "protocol/limits.h"

namespace skerry::gossip {

enum class Verdict {
  kNew,    // held now
  kNewer,  // held now, in the place of an older one
  // known already
  kHeld,
  kOlder,       // older than the held version, or than a dead one
  kDead,        // expired on arrival, or died here before
  kRevoked,     // its author is revoked
  kNoRun,       // its run is unknown (yet), or has no such expert
  kTooSoon,     // too soon after the author's last change
  kUnimportant  // the table, or the share of its author or run, is full
};
inline bool is_held(Verdict verdict) {
  return verdict == Verdict::kNew || verdict == Verdict::kNewer;
}

struct Limits {
  std::size_t records = protocol::kGossipRecords;
  std::size_t bytes = protocol::kGossipTableBytes;
  std::size_t author_records = protocol::kGossipAuthorRecords;
  std::size_t run_records = protocol::kGossipRunRecords;
  std::size_t remembered_dead = protocol::kGossipRecords;
  Duration accept_least = std::chrono::seconds(5);
};

struct Entry {
  Position position = 0;
  RecordPtr record;
  // by the steady clock, in whole seconds to save memory
  std::uint32_t dies_at_s = 0;
  std::uint32_t came_at_s = 0;
};

// Where a record comes from. kTooSoon applies only to records from peers, and
// never after one that came from disk.
enum class Origin { kPeer, kSelf, kDisk };

class Table {
 public:
  explicit Table(NodeId coordinator, Limits limits = {})
      : coordinator_(std::move(coordinator)), limits_(limits) {}

  // RETURNS: what put() would decide, as far as possible before a signature
  // check.
  Verdict judge(const Record& record, Duration age, Now now, Origin origin = Origin::kPeer) const;
  struct Change {
    Verdict verdict = Verdict::kNew;
    std::vector<RecordPtr> dropped;  // without the record that it replaced
  };
  // REQUIRES: `record` is genuine.
  Change put(const RecordPtr& record, Duration age, Now now, Origin origin = Origin::kPeer);
  // Removes expired records. Call it now and then; the functions below never
  // return an expired record, even before this call.
  void expire(Now now);

  const Entry* find(const Key& key,
                    // null if there is none; LIFETIME: until the next change
                    Now now) const;
  const Entry* find_node(const NodeId& node, Now now) const;
  const Entry* find_run(const RunId& run, Now now) const;
  bool is_revoked(const NodeId& node, Now now) const;
  // RETURNS: the entries at `position`: usually one.
  std::vector<const Entry*> at(Position position, Now now) const;
  // RETURNS: all entries from range.first to range.last, in ascending order.
  std::vector<const Entry*> in(Range range, Now now) const;
  void for_each(Now now, const std::function<void(const Entry&)>& visit) const;
  // RETURNS: entry `number` modulo their count; null if there is none.
  const Entry* pick(std::uint64_t number) const;

  // RETURNS: the entry's age now, which a message carries with it.
  static Duration age(const Entry& entry, Now now);
  // How a head compares with this table. `lacking`: it names news. `behind`: it
  // is older than the entry here. Neither: equal or dead.
  struct Standing {
    bool lacking = false;
    bool behind = false;
  };
  Standing compare(const Head& head, Now now) const;
  // RETURNS: whether the table holds another body with this version.
  bool contradicts(const Record& record) const;

  // The xor of the stamps in each bucket of positions; dead records count until
  // expire(). Equal tables have equal fingerprints.
  const Fingerprints& fingerprints() const { return fingerprints_; }
  static std::size_t bucket_of(Position position) { return position >> 56; }
  static Range range_of_bucket(std::size_t bucket);

  std::size_t size() const { return size_; }
  std::size_t bytes() const { return bytes_; }
  std::size_t remembered_dead() const { return dead_.size(); }
  const Limits& limits() const { return limits_; }

 private:
  struct Bucket {
    std::vector<Entry> entries;  // by position, then key
    std::uint32_t next_death_s = UINT32_MAX;
  };
  // A record that left the table. No older version may come in its place. The
  // record itself may return only if it left for lack of room.
  struct Dead {
    Key key;
    Version version;
    Duration until{};
    bool may_return = false;
  };

  const Entry* held(const Key& key, Position position) const;
  bool was_here(const Record& record) const;
  bool has_run(const Record& record, Now now) const;
  bool makes_room(const Record& record, Change& change, Now now);
  void insert(Entry entry);
  void erase(const Record& record);
  void bury(const Record& record, bool may_return, Now now);
  void drop(const RecordPtr& record, Change& change);
  void follow(const Record& record, Change& change, Now now);

  NodeId coordinator_;
  Limits limits_;
  std::array<Bucket, protocol::kGossipBuckets> buckets_;
  Fingerprints fingerprints_{};
  std::size_t size_ = 0;
  std::size_t bytes_ = 0;
  std::map<RunId, std::size_t> run_sizes_;  // records about its experts
  std::map<NodeId, Position> revocations_;  // the revoked node, and the record's position
  std::multimap<Position, Dead> dead_;
  std::deque<std::pair<Duration, Position>> dead_order_;  // until when; growing
};

}  // namespace skerry::gossip
